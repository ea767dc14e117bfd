//! The real cuDNN's plans for our graph on an H100, which is described instead of present.

use soybean_plan::Attention;

use super::{
    super::{AttentionShape, FIRST_VERSION, operation::plans},
    CAUSAL,
};
use crate::cuda::{
    cudnn::described_gpu::{DescribedGpu, H100, kernel_names, show, with_cudnn},
    libraries::installation,
};

/// Checks that cuDNN has kernels for tensor cores of an H100 for attention with heads of this size,
/// in the test of this name.
fn check_heads(test: &str, features: usize) {
    with_cudnn(&format!("cuda::attention::tests::deviceless::{test}"), |folder| {
        let version = installation().cudnn().unwrap().version;
        assert!(version >= FIRST_VERSION, "{version:?}");
        let gpu = DescribedGpu::new(H100).unwrap();
        let layouts = [CAUSAL.layout, soybean_plan::AttentionLayout::HEADS_FIRST];
        let kinds = [(true, true), (true, false), (false, true), (false, false)];
        for (layout, (is_causal, saves_logarithms)) in
            layouts.into_iter().flat_map(|at| kinds.map(|it| (at, it)))
        {
            let attention = Attention {
                features,
                width: features,
                is_causal,
                layout,
                saves_logarithms,
                ..CAUSAL
            };
            let shape = AttentionShape::new(&attention).unwrap();
            let plans = plans(&shape, &format!("{attention:?}"), &gpu).unwrap();
            let names = kernel_names(folder);
            for (plan, name) in plans.iter().zip(&names) {
                let (engine, n_bytes) = (plan.engine, plan.workspace_bytes);
                show(&format!(
                    "head size {features}, causal {is_causal}, logarithms {saves_logarithms}, {layout:?}: engine {engine}, workspace {n_bytes}, {name}"
                ));
            }
            assert_eq!(plans.len(), names.len());
            assert!(names.iter().any(|it| it.contains("sm90")), "{names:?}");
        }
    });
}

#[test]
fn cudnn_has_kernels_for_heads_of_64_on_an_h100() {
    check_heads("cudnn_has_kernels_for_heads_of_64_on_an_h100", 64);
}

#[test]
fn cudnn_has_kernels_for_heads_of_128_on_an_h100() {
    check_heads("cudnn_has_kernels_for_heads_of_128_on_an_h100", 128);
}

#[test]
fn cudnn_has_kernels_for_heads_of_256_on_an_h100() {
    check_heads("cudnn_has_kernels_for_heads_of_256_on_an_h100", 256);
}

#[test]
fn cudnn_has_no_kernels_for_rows_of_40_bytes_on_an_h100() {
    let test = "cudnn_has_no_kernels_for_rows_of_40_bytes_on_an_h100";
    with_cudnn(&format!("cuda::attention::tests::deviceless::{test}"), |_| {
        let gpu = DescribedGpu::new(H100).unwrap();
        // They are not multiples of 16 bytes.
        let odd = Attention { features: 20, width: 20, ..CAUSAL };
        let plans = plans(&AttentionShape::new(&odd).unwrap(), "odd", &gpu);
        assert!(plans.map_or(0, |it| it.len()) == 0);
    });
}
