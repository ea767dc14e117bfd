//! Shared memory and sizes of attention.

use soybean_plan::{DType, Kernel, Precision};

use super::*;

fn generated(features: usize, width: usize, precision: Precision) -> Option<Generated> {
    let kernel = Kernel::from(Attention {
        is_causal: true,
        pairs: Attention::causal_pairs(100, 100),
        scale: 0.125,
        ..Attention::new(AttentionForm::Gradient, 2, [100; 2], [features, width])
    });
    let inputs = [DType::F32; 5];
    let results = [DType::F32; 3];
    let call = Call { kernel: &kernel, inputs: &inputs, results: &results, precision };
    crate::generate(&call, "k")
}

#[test]
fn tiles_of_all_sizes_fit_into_shared_memory() {
    // The limits of a block on GPUs of compute capability 8.0, and of 8.6, 8.9 and 12.0.
    // Source: CUDA C++ Programming Guide, technical specifications.
    let most_bytes = |precision| match precision {
        Precision::F32 => 163 << 10,
        Precision::Tf32 | Precision::Bf16 => 99 << 10,
    };
    let sizes: Vec<usize> = (1..=256).step_by(17).chain([64, 128, 256]).collect();
    for (features, width) in sizes.iter().flat_map(|it| sizes.iter().map(move |n| (*it, *n))) {
        for precision in Precision::ALL {
            let operations = generated(features, width, precision).unwrap().operations;
            // In bf16, gradients of large keys and values have a function each.
            let is_apart = precision == Precision::Bf16 && features.max(width) > 128;
            assert_eq!(operations.len(), if is_apart { 4 } else { 3 });
            for operation in operations {
                let Operation::Launch(launch) = operation else { panic!("{operation:?}") };
                // Those by fused multiply-add need more.
                let is_fma = precision == Precision::Tf32 && features.max(width) > 128;
                let most = most_bytes(if is_fma { Precision::F32 } else { precision });
                assert!(launch.shared_bytes <= most, "{features} {width} {launch:?}");
            }
        }
    }
}

#[test]
fn larger_sizes_have_no_text() {
    assert_eq!(generated(257, 8, Precision::F32), None);
    assert_eq!(generated(8, 257, Precision::F32), None);
}
