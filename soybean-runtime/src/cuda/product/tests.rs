//! What is decided before cuBLASLt is asked.

use super::*;

#[test]
fn calls_begin_at_the_multiples_that_all_of_them_share() {
    assert_eq!(alignments(&[[0, 0, 0]]), [64, 64, 64]);
    assert_eq!(alignments(&[[0, 128, 0], [48, 256, 4], [96, 384, 8]]), [16, 64, 4]);
}

#[test]
fn products_are_summed_in_single_precision() {
    use DType::{Bf16, F32, I32};
    assert_eq!(compute([F32; 3], Precision::F32), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([F32; 3], Precision::Tf32), Some(Compute::CUBLAS_COMPUTE_32F_FAST_TF32));
    assert_eq!(compute([Bf16, Bf16, F32], Precision::Bf16), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([Bf16; 3], Precision::F32), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([F32, Bf16, F32], Precision::Bf16), None);
    assert_eq!(compute([F32, F32, Bf16], Precision::Bf16), None);
    assert_eq!(compute([I32; 3], Precision::F32), None);
}
