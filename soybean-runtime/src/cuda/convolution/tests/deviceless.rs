//! The real cuDNN's engines for our graphs on an H100, which is described instead of present.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::*;
use crate::cuda::cudnn::described_gpu::{DescribedGpu, H100, kernel_names, show, with_cudnn};

/// 32 images of 56 x 56 pixels.
const IMAGES: Convolution = Convolution {
    batch: 32,
    channels: 64,
    filters: 64,
    image: [56; 2],
    result: [56; 2],
    padding: [1; 2],
    layout: ImageLayout::ChannelsLast,
    ..PLAIN
};

/// Returns the numbers and workspaces of the engines that have a plan.
fn plans(
    gpu: &DescribedGpu,
    (convolution, dtype, precision): (&Convolution, DType, Precision),
    function: Option<Function>,
) -> Vec<(i64, usize)> {
    let operations = ConvolutionOperations { convolution, dtype };
    let operations = match function {
        Some(function) => operations.with_epilogue(function),
        None => operations.plain(),
    };
    let name = format!("{convolution:?} {dtype:?} {function:?}");
    let (operations, unwanted) = (operations.unwrap(), unwanted_notes(precision));
    let found = [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK]
        .map(|mode| engines(&operations, &name, gpu, HeuristicMode(mode), &unwanted).unwrap());
    let plans = found.into_iter().flatten().take(3).filter_map(|it| it.into_plan(gpu));
    plans.map(|it| (it.engine, it.workspace_bytes)).collect()
}

/// Returns the files of plans, with the times at which they were written.
fn kept(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let files = fs::read_dir(folder.join("cache")).into_iter().flatten().filter_map(Result::ok);
    let plans = files.filter(|it| it.path().extension().is_some_and(|it| it == "plan"));
    plans.map(|it| (it.path(), it.metadata().unwrap().modified().unwrap())).collect()
}

fn path(test: &str) -> String {
    format!("cuda::convolution::tests::deviceless::{test}")
}

#[test]
fn cudnn_has_engines_for_all_convolutions_on_an_h100() {
    with_cudnn(&path("cudnn_has_engines_for_all_convolutions_on_an_h100"), |_| {
        let gpu = DescribedGpu::new(H100).unwrap();
        let all = [
            IMAGES,
            Convolution { channels: 3, ..IMAGES },
            Convolution { layout: ImageLayout::ChannelsFirst, ..IMAGES },
            Convolution { groups: 2, channels: 32, filters: 32, ..IMAGES },
            Convolution { groups: 64, channels: 1, filters: 1, ..IMAGES },
            Convolution { dilation: [2, 1], padding: [2, 1], ..IMAGES },
            Convolution { channels: 5, filters: 7, ..IMAGES },
        ];
        for (dtype, precision) in [
            (DType::F32, Precision::F32),
            (DType::F32, Precision::Tf32),
            (DType::Bf16, Precision::Bf16),
        ] {
            for (convolution, form) in all.iter().flat_map(|it| FORMS.map(|form| (it, form))) {
                let convolution = Convolution { form, ..*convolution };
                let functions: &[Option<Function>] = match form {
                    ConvolutionForm::Forward => {
                        &[None, Some(Function::Identity), Some(Function::Relu)]
                    }
                    ConvolutionForm::Data | ConvolutionForm::Filter => &[None],
                };
                for function in functions {
                    let plans = plans(&gpu, (&convolution, dtype, precision), *function);
                    show(&format!("{convolution} {precision:?} {function:?}: {plans:?}"));
                    assert!(!plans.is_empty(), "{convolution:?} {precision:?} {function:?}");
                }
            }
        }
    });
}

#[test]
fn gradients_of_relu_are_compiled_once_on_an_h100() {
    with_cudnn(&path("gradients_of_relu_are_compiled_once_on_an_h100"), |folder| {
        let gpu = DescribedGpu::new(H100).unwrap();
        let gradient = Convolution { form: ConvolutionForm::Data, ..IMAGES };
        for (dtype, precision) in [(DType::F32, Precision::Tf32), (DType::Bf16, Precision::Bf16)] {
            let made = || {
                let function = Some(Function::ReluGradient);
                plans(&gpu, (&gradient, dtype, precision), function)
            };
            let before = kept(folder);
            let plans = made();
            assert!(plans.len() == 3 && !kernel_names(folder).is_empty(), "{plans:?}");
            let new: Vec<_> = kept(folder).into_iter().filter(|it| !before.contains(it)).collect();
            assert_eq!(new.len(), plans.len());
            // Plans that are read are not written again.
            assert_eq!(made(), plans);
            assert!(new.iter().all(|it| kept(folder).contains(it)));
            // A damaged file is not read, but replaced.
            fs::write(&new[0].0, "damaged").unwrap();
            assert_eq!(made(), plans);
            assert_ne!(fs::read(&new[0].0).unwrap(), b"damaged");
        }
    });
}
