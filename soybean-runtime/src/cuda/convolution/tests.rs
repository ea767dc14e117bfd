//! What is decided before cuDNN is asked, and convolutions on a virtual GPU against plain loops.
#![expect(unsafe_code, reason = "convolutions run on raw memory")]

use soybean_plan::ConvolutionForm;

use super::*;
use crate::cuda::{
    stream::Priority,
    virtual_gpus::{Tensor, gpus, on_virtual_gpus},
};

const PLAIN: Convolution = Convolution {
    form: ConvolutionForm::Forward,
    batch: 2,
    groups: 1,
    channels: 3,
    filters: 4,
    image: [7, 8],
    window: [3, 3],
    result: [5, 6],
    stride: [1, 1],
    padding: [0, 0],
    dilation: [1, 1],
};

const SPREAD: Convolution =
    Convolution { result: [3, 4], stride: [2, 3], padding: [1, 2], dilation: [2, 1], ..PLAIN };

#[test]
fn results_are_counted_as_cudnn_counts_them() {
    assert!(is_usual(&PLAIN));
    assert!(is_usual(&SPREAD));
    assert!(!is_usual(&Convolution { result: [3, 3], ..SPREAD }));
    assert!(!is_usual(&Convolution { window: [8, 3], ..PLAIN }));
    assert!(!is_usual(&Convolution { batch: 0, ..PLAIN }));
}

#[test]
fn all_tensors_have_one_type() {
    use DType::{Bf16, F32};
    assert_eq!(math([F32; 3], Precision::F32), Some(Math::CUDNN_FMA_MATH));
    assert_eq!(math([F32; 3], Precision::Tf32), Some(Math::CUDNN_DEFAULT_MATH));
    assert_eq!(math([Bf16; 3], Precision::Bf16), Some(Math::CUDNN_TENSOR_OP_MATH));
    assert_eq!(math([Bf16, Bf16, F32], Precision::Bf16), None);
}

#[test]
fn refusals_are_not_failures() {
    use sys::cudnnStatus_t as Status;
    assert!(is_refusal(NOT_SUPPORTED));
    assert!(is_refusal(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_EXECUTION_FAILED)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_NOT_INITIALIZED)));
}

/// The elements of images, filters and results.
fn sizes(it: &Convolution) -> [usize; 3] {
    let images = it.batch * it.groups * it.channels * it.image[0] * it.image[1];
    let filters = it.groups * it.filters * it.channels * it.window[0] * it.window[1];
    [images, filters, it.batch * it.groups * it.filters * it.result[0] * it.result[1]]
}

/// Calls `visit` with the places of each product that the convolution sums, in images, filters and results.
fn walk(it: &Convolution, mut visit: impl FnMut([usize; 3])) {
    let inside = |axis: usize, at: usize, window: usize| {
        let place =
            (at * it.stride[axis] + window * it.dilation[axis]).checked_sub(it.padding[axis])?;
        (place < it.image[axis]).then_some(place)
    };
    let range = |n: usize| 0..n;
    for n in range(it.batch) {
        for (g, o) in range(it.groups).flat_map(|g| range(it.filters).map(move |o| (g, o))) {
            for (c, i, j) in range(it.channels * it.window[0] * it.window[1]).map(|at| {
                (
                    at / it.window[1] / it.window[0],
                    at / it.window[1] % it.window[0],
                    at % it.window[1],
                )
            }) {
                let filter = (((g * it.filters + o) * it.channels + c) * it.window[0] + i)
                    * it.window[1]
                    + j;
                for (y, x) in
                    range(it.result[0]).flat_map(|y| range(it.result[1]).map(move |x| (y, x)))
                {
                    let (Some(row), Some(column)) = (inside(0, y, i), inside(1, x, j)) else {
                        continue;
                    };
                    let plane = (n * it.groups + g) * it.channels + c;
                    let image = (plane * it.image[0] + row) * it.image[1] + column;
                    let plane = (n * it.groups + g) * it.filters + o;
                    visit([image, filter, (plane * it.result[0] + y) * it.result[1] + x]);
                }
            }
        }
    }
}

fn check(convolution: &Convolution, dtype: DType, precision: Precision) {
    let gpu = &gpus(1)[0];
    let (dnn, stream) = (Dnn::new(gpu).unwrap(), Stream::new(gpu, Priority::Normal).unwrap());
    let plan = ConvolutionPlan::new(&dnn, convolution, [dtype; 3], precision).unwrap();
    let plan = plan.expect("cuDNN has such convolutions");
    // Which of images, filters and results are read, and which is written.
    let [left, right, target] = match convolution.form {
        ConvolutionForm::Forward => [0, 1, 2],
        ConvolutionForm::Data => [2, 1, 0],
        ConvolutionForm::Filter => [0, 2, 1],
    };
    let mut number = 0;
    let mut tensors = sizes(convolution).map(|n| {
        number += 1;
        Tensor::new(dtype, n, number)
    });
    let memories = tensors.each_ref().map(|it| it.upload(gpu));
    let workspace =
        crate::cuda::memory::DeviceMemory::zeroed(gpu, plan.workspace_bytes(), "the workspace")
            .unwrap();
    let operands = [left, right, target].map(|it| memories[it].address(0));
    // SAFETY: the memories are as large as the convolution says, and live until the stream is done.
    unsafe { plan.run(&dnn, &stream, operands, workspace.address(0)) }.unwrap();
    stream.synchronize().unwrap();
    let mut sums = vec![0.0; tensors[target].values.len()];
    let mut terms = vec![0.0; sums.len()];
    walk(convolution, |places| {
        let term = f64::from(tensors[left].values[places[left]])
            * f64::from(tensors[right].values[places[right]]);
        sums[places[target]] += term;
        terms[places[target]] += term.abs();
    });
    tensors[target].download(&memories[target]);
    for ((found, expected), size) in tensors[target].values.iter().zip(sums).zip(terms) {
        // The error of a sum in single precision, and of rounding its operands or the sum.
        let unit = match (dtype, precision) {
            (DType::Bf16, _) => 2_f64.powi(-8),
            (_, Precision::Tf32) => 2_f64.powi(-10),
            _ => 2_f64.powi(-20),
        };
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= unit * size + 1e-30, "{convolution:?}: {found}, not {expected}");
    }
}

#[test]
fn convolutions_of_all_forms_and_types() {
    on_virtual_gpus("cuda::convolution::tests::convolutions_of_all_forms_and_types", &[], || {
        let grouped = Convolution { groups: 2, ..SPREAD };
        let flat = Convolution { image: [1, 8], window: [1, 3], result: [1, 6], ..PLAIN };
        for convolution in [PLAIN, SPREAD, grouped, flat] {
            for form in [ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter] {
                for (dtype, precision) in [
                    (DType::F32, Precision::F32),
                    (DType::F32, Precision::Tf32),
                    (DType::Bf16, Precision::Bf16),
                ] {
                    check(&Convolution { form, ..convolution }, dtype, precision);
                }
            }
        }
    });
}

#[test]
fn what_cudnn_cannot_compute_is_left_to_others() {
    on_virtual_gpus(
        "cuda::convolution::tests::what_cudnn_cannot_compute_is_left_to_others",
        &[],
        || {
            let dnn = Dnn::new(&gpus(1)[0]).unwrap();
            let is_left = |convolution: &Convolution, types: [DType; 3]| {
                ConvolutionPlan::new(&dnn, convolution, types, Precision::F32).unwrap().is_none()
            };
            assert!(!is_left(&PLAIN, [DType::F32; 3]));
            assert!(is_left(&Convolution { result: [5, 5], ..PLAIN }, [DType::F32; 3]));
            assert!(is_left(&PLAIN, [DType::Bf16, DType::Bf16, DType::F32]));
        },
    );
}
