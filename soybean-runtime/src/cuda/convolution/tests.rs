//! Tests of the decisions before a cuDNN call, and of convolutions on a virtual GPU against plain
//! loops.
#![expect(unsafe_code, reason = "convolutions run on raw memory")]

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::Kernel;

use super::*;
use crate::cuda::{
    compile::Compiler,
    epilogue::Epilogue,
    host_tensor::{HostTensor, gpus},
    kernels::{GpuKernels, KernelOperands},
    memory::DeviceMemory,
    source::{KernelCall, KernelRequests},
    stream::Priority,
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
fn extents_match_those_of_cudnn() {
    assert!(has_standard_extents(&PLAIN));
    assert!(has_standard_extents(&SPREAD));
    assert!(!has_standard_extents(&Convolution { result: [3, 3], ..SPREAD }));
    assert!(!has_standard_extents(&Convolution { window: [8, 3], ..PLAIN }));
    assert!(!has_standard_extents(&Convolution { batch: 0, ..PLAIN }));
}

/// Channels and filters that suit tensor cores.
const WIDE: Convolution = Convolution { channels: 8, filters: 16, ..SPREAD };

const FORMS: [ConvolutionForm; 3] =
    [ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter];

/// Types of filter gradients in mixed precision.
const WIDENED: [DType; 3] = [DType::Bf16, DType::Bf16, DType::F32];

#[test]
fn only_filter_gradients_mix_types() {
    use DType::{Bf16, F32, I32};
    for form in FORMS {
        assert_eq!(compute_type(form, [F32; 3]), Some(F32));
        assert_eq!(compute_type(form, [Bf16; 3]), Some(Bf16));
        assert_eq!(compute_type(form, [Bf16, F32, F32]), None);
        assert_eq!(compute_type(form, [I32; 3]), None);
        let is_gradient = form == ConvolutionForm::Filter;
        assert_eq!(compute_type(form, WIDENED), is_gradient.then_some(Bf16));
    }
}

#[test]
fn math_types_follow_the_precision() {
    assert_eq!(math(DType::F32, Precision::F32), Math::CUDNN_FMA_MATH);
    assert_eq!(math(DType::F32, Precision::Tf32), Math::CUDNN_DEFAULT_MATH);
    assert_eq!(math(DType::Bf16, Precision::Bf16), Math::CUDNN_TENSOR_OP_MATH);
}

#[test]
fn rejections_are_distinguished_from_failures() {
    use sys::Status;
    assert!(is_refusal(NOT_SUPPORTED));
    assert!(is_refusal(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_EXECUTION_FAILED)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_NOT_INITIALIZED)));
}

/// Returns the number of elements of images, filters and results.
fn sizes(it: &Convolution) -> [usize; 3] {
    let images = it.batch * it.groups * it.channels * it.image[0] * it.image[1];
    let filters = it.groups * it.filters * it.channels * it.window[0] * it.window[1];
    [images, filters, it.batch * it.groups * it.filters * it.result[0] * it.result[1]]
}

/// Calls `visit` for each product that the convolution sums, with the element offsets in images,
/// filters and results.
fn for_each_product(it: &Convolution, mut visit: impl FnMut([usize; 3])) {
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

/// A convolution and the types of its operands.
type Case = (Convolution, [DType; 3]);

/// Computes all cases with one set of kernels, each with a workspace full of NaNs.
fn check(cases: &[Case], precision: Precision) {
    let gpu = &gpus(1)[0];
    let kernels: Vec<Kernel> = cases.iter().map(|it| it.0.into()).collect();
    let call = |(kernel, (_, types)): (usize, &Case)| KernelCall {
        kernel,
        inputs: types[..2].to_vec(),
        results: types[2..].to_vec(),
        epilogue: Epilogue::default(),
    };
    let calls: Vec<KernelCall> = cases.iter().enumerate().map(call).collect();
    let requests = KernelRequests { kernels: &kernels, precision, calls: &calls, transfers: &[] };
    let kernels = GpuKernels::new(gpu, &mut Compiler::default(), &requests, None).unwrap();
    let stream = Stream::new(gpu, Priority::Normal).unwrap();
    let workspace = DeviceMemory::zeroed(gpu, kernels.workspace_bytes(), "the workspace").unwrap();
    for (call, case) in cases.iter().enumerate() {
        workspace.write(0, &vec![0xff_u8; kernels.workspace_bytes()]).unwrap();
        run(&kernels, call, &stream, &workspace, case, precision);
    }
}

/// Runs a case and compares it with plain loops.
fn run(
    kernels: &GpuKernels,
    call: usize,
    stream: &Stream,
    workspace: &DeviceMemory,
    (convolution, types): &Case,
    precision: Precision,
) {
    // Which of images, filters and results are read, and which is written.
    let [left, right, target] = match convolution.form {
        ConvolutionForm::Forward => [0, 1, 2],
        ConvolutionForm::Data => [2, 1, 0],
        ConvolutionForm::Filter => [0, 2, 1],
    };
    let sizes = sizes(convolution);
    let mut tensors: Vec<HostTensor> = [(left, types[0]), (right, types[1]), (target, types[2])]
        .iter()
        .map(|&(part, dtype)| HostTensor::new(dtype, sizes[part], part as u64 + 1))
        .collect();
    let gpu = &gpus(1)[0];
    let memories: Vec<DeviceMemory> = tensors.iter().map(|it| it.upload(gpu)).collect();
    let at: Vec<u64> = memories.iter().map(|it| it.address(0)).collect();
    let operands = KernelOperands {
        inputs: &at[..2],
        results: &at[2..],
        scalars: 0,
        workspace: workspace.address(0),
        bias: 0,
        aux: 0,
    };
    // SAFETY: the allocations are as large as the convolution requires, and live until the stream
    // is done.
    unsafe { kernels.run(call, stream, operands) }.unwrap();
    stream.synchronize().unwrap();
    let mut sums = vec![0.0; sizes[target]];
    let mut terms = vec![0.0; sums.len()];
    for_each_product(convolution, |offsets| {
        let term = f64::from(tensors[0].values[offsets[left]])
            * f64::from(tensors[1].values[offsets[right]]);
        sums[offsets[target]] += term;
        terms[offsets[target]] += term.abs();
    });
    tensors[2].download(&memories[2]);
    // The error of a sum in single precision, and of rounding the operands or the sum.
    let unit = match (types[0], precision) {
        (DType::Bf16, _) => 2_f64.powi(-8),
        (_, Precision::Tf32) => 2_f64.powi(-10),
        _ => 2_f64.powi(-20),
    };
    for ((found, expected), size) in tensors[2].values.iter().zip(sums).zip(terms) {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= unit * size + 1e-30, "{convolution:?} {types:?}: {found}, not {expected}");
    }
}

/// Returns all kinds of these convolutions, and mixed-precision filter gradients for `bf16`.
fn cases(convolutions: &[Convolution], dtype: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for convolution in convolutions {
        cases.extend(FORMS.map(|form| (Convolution { form, ..*convolution }, [dtype; 3])));
        if dtype == DType::Bf16 {
            let form = ConvolutionForm::Filter;
            cases.push((Convolution { form, ..*convolution }, WIDENED));
        }
    }
    cases
}

/// Returns the plan of a convolution, or `None` if cuDNN does not compute it.
fn plan((convolution, types): &Case, precision: Precision) -> Option<ConvolutionPlan> {
    let cudnn = Cudnn::new(&gpus(1)[0]).unwrap();
    ConvolutionPlan::new(&cudnn, convolution, *types, precision).unwrap()
}

/// Convolutions without a multiple of 8 channels or filters: plain, strided, grouped and
/// one-dimensional.
fn narrow() -> [Convolution; 4] {
    let grouped = Convolution { groups: 2, ..SPREAD };
    let flat = Convolution { image: [1, 8], window: [1, 3], result: [1, 6], ..PLAIN };
    [PLAIN, SPREAD, grouped, flat]
}

#[test]
fn convolutions_of_all_forms_and_types() {
    on_virtual_gpus("cuda::convolution::tests::convolutions_of_all_forms_and_types", &[], |_| {
        for (dtype, precision) in [
            (DType::F32, Precision::F32),
            (DType::F32, Precision::Tf32),
            (DType::Bf16, Precision::Bf16),
        ] {
            let cases = cases(&narrow(), dtype);
            for case in &cases {
                let plan = plan(case, precision).expect("cuDNN has such convolutions");
                let ConvolutionLayout { before, after, .. } = plan.layout_plan();
                assert!(before.is_empty(), "{case:?}: {before:?}");
                assert_eq!(after.len(), usize::from(case.1[2] != dtype), "{case:?}");
            }
            check(&cases, precision);
        }
    });
}

#[test]
fn convolutions_with_channels_last() {
    on_virtual_gpus("cuda::convolution::tests::convolutions_with_channels_last", &[], |_| {
        let grouped = Convolution { groups: 2, ..WIDE };
        // Large enough for tiled copies, with partial tiles.
        let large = Convolution { channels: 40, image: [9, 8], result: [4, 4], ..WIDE };
        let point = Convolution { padding: [0, 0], window: [1, 1], result: [4, 3], ..WIDE };
        let cases = cases(&[WIDE, grouped, large, point], DType::Bf16);
        for case in &cases {
            let plan = plan(case, Precision::Bf16).expect("cuDNN has such convolutions");
            let ConvolutionLayout { before, after, .. } = plan.layout_plan();
            // For filters of one pixel both layouts are the same.
            let are_filters_copied = case.0.window != [1, 1];
            let is_gradient = case.0.form == ConvolutionForm::Filter;
            let n_before = if is_gradient || are_filters_copied { 2 } else { 1 };
            let is_widened = case.1 == WIDENED;
            let n_after = usize::from(!is_gradient || are_filters_copied || is_widened);
            assert_eq!([before.len(), after.len()], [n_before, n_after], "{case:?}");
        }
        check(&cases, Precision::Bf16);
    });
}

#[test]
fn unsupported_convolutions_are_left_to_generated_kernels() {
    on_virtual_gpus(
        "cuda::convolution::tests::unsupported_convolutions_are_left_to_generated_kernels",
        &[],
        |_| {
            let is_unsupported = |convolution: Convolution, types: [DType; 3]| {
                plan(&(convolution, types), Precision::F32).is_none()
            };
            assert!(!is_unsupported(PLAIN, [DType::F32; 3]));
            assert!(is_unsupported(Convolution { result: [5, 5], ..PLAIN }, [DType::F32; 3]));
            assert!(is_unsupported(PLAIN, WIDENED));
        },
    );
}

#[test]
fn large_tensors_keep_their_layout() {
    on_virtual_gpus("cuda::convolution::tests::large_tensors_keep_their_layout", &[], |_| {
        // Images and results of 1 GiB each, and filters. Nothing is computed.
        let batch = (1 << 30) / (2 * 8 * 64 * 64);
        let (image, result) = ([64, 64], [64, 64]);
        let large = Convolution { batch, filters: 8, image, result, padding: [1, 1], ..PLAIN };
        let large = Convolution { channels: 8, ..large };
        let types = [DType::Bf16; 3];
        let plan = |it| plan(&(it, types), Precision::Bf16).unwrap();
        assert_eq!(plan(large).layout_plan().copied_bytes, 0);
        let smaller = Convolution { batch: batch - 1, ..large };
        assert!(plan(smaller).layout_plan().copied_bytes > 0);
    });
}
