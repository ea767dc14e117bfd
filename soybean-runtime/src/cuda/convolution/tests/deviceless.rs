//! The real cuDNN's engines for our graphs on an H100, which is described instead of present.

use std::fs;

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
    let heuristics = [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK].map(HeuristicMode);
    let unwanted = unwanted_notes(precision);
    let found = engines(&operations.unwrap(), &name, gpu, &heuristics, &unwanted).unwrap();
    let plans = found.into_iter().take(3).filter_map(|it| it.into_plan(gpu));
    plans.map(|it| (it.engine, it.workspace_bytes)).collect()
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
fn gradients_of_relu_are_compiled_once() {
    with_cudnn(&path("gradients_of_relu_are_compiled_once"), |folder| {
        let gpu = DescribedGpu::new(H100).unwrap();
        let gradient = Convolution { form: ConvolutionForm::Data, ..IMAGES };
        for (dtype, precision) in [(DType::F32, Precision::Tf32), (DType::Bf16, Precision::Bf16)] {
            let made = || {
                let function = Some(Function::ReluGradientByResult);
                plans(&gpu, (&gradient, dtype, precision), function)
            };
            let plans = made();
            assert!(plans.len() == 3 && !kernel_names(folder).is_empty(), "{plans:?}");
            let is_plan = |it: &fs::DirEntry| it.path().extension().is_some_and(|it| it == "plan");
            let kept = fs::read_dir(folder.join("cache")).unwrap().filter_map(Result::ok);
            let kept: Vec<_> = kept.filter(is_plan).map(|it| it.path()).collect();
            assert!(kept.len() >= plans.len());
            assert_eq!(made(), plans);
            // A damaged file is not read.
            fs::write(&kept[0], "damaged").unwrap();
            assert_eq!(made(), plans);
        }
    });
}
