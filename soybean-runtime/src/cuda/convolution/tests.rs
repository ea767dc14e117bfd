//! Tests of the decisions before a cuDNN call, and of convolutions on a virtual GPU against plain
//! loops.
#![expect(unsafe_code, reason = "convolutions run on raw memory")]

mod deviceless;
mod epilogues;
mod rivals;

use std::{slice, sync::Arc};

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{ImageLayout, Kernel, KernelDescriptor};

use super::*;
use crate::cuda::{
    epilogue::Epilogue,
    gpu::Gpu,
    host_tensor::{HostTensor, gpus},
    kernels::{GpuKernels, KernelOperands},
    memory::DeviceMemory,
    peers::{NoPeers, Peers},
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
    layout: ImageLayout::ChannelsFirst,
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
const WIDE: Convolution = Convolution { channels: 16, filters: 16, ..SPREAD };

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
fn rejections_are_distinguished_from_failures() {
    use sys::Status;
    assert!(is_refusal(sys::NOT_SUPPORTED));
    assert!(is_refusal(CudnnError(Status::CUDNN_STATUS_BAD_PARAM)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_EXECUTION_FAILED)));
    assert!(!is_refusal(CudnnError(Status::CUDNN_STATUS_NOT_INITIALIZED)));
}

/// Returns the number of elements of images, filters and results.
fn sizes(it: &Convolution) -> [usize; 3] {
    extents(it).map(|it| it.iter().product())
}

/// A convolution and the types of its operands.
type Case = (Convolution, [DType; 3]);

/// Computes all cases with one set of kernels, each with a workspace full of NaNs.
fn check(cases: &[Case], precision: Precision, autotunes: bool) {
    let gpu = &gpus(1)[0];
    let kernels: Vec<Kernel> = cases.iter().map(|it| it.0.into()).collect();
    let call = |(kernel, (_, types)): (usize, &Case)| KernelCall {
        kernel,
        inputs: types[..2].to_vec(),
        results: types[2..].to_vec(),
        epilogue: Epilogue::default(),
        checked: Vec::new(),
    };
    let calls: Vec<KernelCall> = cases.iter().enumerate().map(call).collect();
    let kernels = compiled(gpu, &kernels, &calls, precision, autotunes);
    let stream = Stream::new(gpu, Priority::Normal).unwrap();
    let workspace = DeviceMemory::zeroed(gpu, kernels.workspace_bytes(), "the workspace").unwrap();
    for (call, case) in cases.iter().enumerate() {
        workspace.write(0, &vec![0xff_u8; kernels.workspace_bytes()]).unwrap();
        run(&kernels, call, &stream, &workspace, case, precision);
    }
}

/// Makes the kernels of these calls, and measures algorithms if that is asked for.
fn compiled(
    gpu: &Arc<Gpu>,
    kernels: &[Kernel],
    calls: &[KernelCall],
    precision: Precision,
    autotunes: bool,
) -> GpuKernels {
    let requests = KernelRequests {
        kernels,
        precision,
        calls,
        transfers: &[],
        max_workspace_bytes: MAX_WORKSPACE_BYTES,
    };
    let peers: Arc<dyn Peers> = Arc::new(NoPeers);
    GpuKernels::of_all(slice::from_ref(gpu), &requests, autotunes, &peers).unwrap().remove(0)
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
    let operands = KernelOperands::plain(&at[..2], &at[2..], workspace.address(0));
    // SAFETY: the allocations are as large as the convolution requires, and live until the stream
    // is done.
    unsafe { kernels.run(call, stream, operands) }.unwrap();
    stream.synchronize().unwrap();
    let values = |absolute: fn(f64) -> f64| {
        let inputs = [0, 1].map(|number: usize| -> Vec<f64> {
            tensors[number].values.iter().map(|it| absolute(f64::from(*it))).collect()
        });
        convolution.evaluate(&[&inputs[0], &inputs[1]], &[]).remove(0)
    };
    let (sums, terms) = (values(|it| it), values(f64::abs));
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

/// More than any algorithm needs for these convolutions.
const MAX_WORKSPACE_BYTES: usize = 1 << 20;

/// Returns the plan of a convolution, or `None` if cuDNN does not compute it.
fn plan(
    (convolution, types): &Case,
    precision: Precision,
    max_workspace_bytes: usize,
) -> Option<ConvolutionPlan> {
    let cudnn = Cudnn::new(&gpus(1)[0]).unwrap();
    let limits = ConvolutionLimits { precision, max_workspace_bytes };
    let none = Epilogue::default();
    let mut plan = ConvolutionPlan::new(&cudnn, convolution, *types, none, limits).unwrap()?;
    plan.choose_first(&cudnn);
    Some(plan)
}

/// Plain, strided, grouped, depthwise, one-dimensional and wide convolutions, and one of few
/// channels by many filters, in both layouts.
fn convolutions() -> Vec<Convolution> {
    let grouped = Convolution { groups: 2, ..SPREAD };
    let depthwise = Convolution { groups: 5, channels: 1, filters: 1, ..PLAIN };
    let flat = Convolution { image: [1, 8], window: [1, 3], result: [1, 6], ..PLAIN };
    let few = Convolution { filters: 72, ..SPREAD };
    let all = [PLAIN, SPREAD, grouped, depthwise, flat, WIDE, few];
    let of = |layout| all.map(|it| Convolution { layout, ..it });
    ImageLayout::ALL.iter().copied().flat_map(of).collect()
}

#[test]
fn convolutions_of_all_forms_and_types() {
    on_virtual_gpus("cuda::convolution::tests::convolutions_of_all_forms_and_types", &[], |_| {
        for (dtype, precision) in [
            (DType::F32, Precision::F32),
            (DType::F32, Precision::Tf32),
            (DType::Bf16, Precision::Bf16),
        ] {
            let cases = cases(&convolutions(), dtype);
            for case in &cases {
                let plan = plan(case, precision, MAX_WORKSPACE_BYTES);
                let plan = plan.expect("cuDNN has such convolutions");
                assert_eq!(plan.conversion().is_some(), case.1[2] != dtype, "{case:?}");
            }
            check(&cases, precision, false);
        }
    });
}

#[test]
fn unsupported_convolutions_are_left_to_generated_kernels() {
    on_virtual_gpus(
        "cuda::convolution::tests::unsupported_convolutions_are_left_to_generated_kernels",
        &[],
        |_| {
            let is_unsupported = |convolution: Convolution, types: [DType; 3]| {
                plan(&(convolution, types), Precision::F32, MAX_WORKSPACE_BYTES).is_none()
            };
            assert!(!is_unsupported(PLAIN, [DType::F32; 3]));
            assert!(is_unsupported(Convolution { result: [5, 5], ..PLAIN }, [DType::F32; 3]));
            assert!(is_unsupported(PLAIN, WIDENED));
        },
    );
}

#[test]
fn engines_that_fit_are_taken_in_their_order() {
    on_virtual_gpus(
        "cuda::convolution::tests::engines_that_fit_are_taken_in_their_order",
        &[],
        |_| {
            let types = [DType::Bf16; 3];
            let plan =
                |form, most| plan(&(Convolution { form, ..PLAIN }, types), Precision::Bf16, most);
            let workspace = |form, most| plan(form, most).map(|it| it.workspace_bytes());
            // The second engine needs no workspace. The gradient's, which is not deterministic,
            // is not taken.
            assert_eq!(workspace(ConvolutionForm::Forward, 4096), Some(4096));
            assert_eq!(workspace(ConvolutionForm::Forward, 4095), Some(0));
            assert_eq!(workspace(ConvolutionForm::Data, 4096), Some(4096));
            assert_eq!(workspace(ConvolutionForm::Data, 4095), None);
        },
    );
}

#[test]
fn engines_for_all_convolutions_are_a_last_resort() {
    let test = "cuda::convolution::tests::engines_for_all_convolutions_are_a_last_resort";
    on_virtual_gpus(test, &[], |_| {
        let cudnn = Cudnn::new(&gpus(1)[0]).unwrap();
        let gradient = Convolution { form: ConvolutionForm::Data, ..PLAIN };
        let numbers = |dtype: DType, precision| -> Vec<i64> {
            let limits = ConvolutionLimits { precision, max_workspace_bytes: MAX_WORKSPACE_BYTES };
            let none = Epilogue::default();
            let plan = ConvolutionPlan::new(&cudnn, &gradient, [dtype; 3], none, limits).unwrap();
            plan.unwrap().candidates.iter().map(|it| it.engine.number).collect()
        };
        // Number 0 is for all convolutions, and the only one in single precision.
        assert_eq!(numbers(DType::Bf16, Precision::Bf16), [1]);
        assert_eq!(numbers(DType::F32, Precision::F32), [0]);
    });
}

/// The virtual cuDNN's engine of Winograd's transforms.
const WINOGRAD: i64 = 4;

#[test]
fn single_precision_takes_no_transforms() {
    on_virtual_gpus("cuda::convolution::tests::single_precision_takes_no_transforms", &[], |_| {
        let types = [DType::F32; 3];
        // cuDNN suggests a transform first.
        for form in FORMS {
            let case = (Convolution { form, ..PLAIN }, types);
            let first = |precision| {
                let plan = plan(&case, precision, MAX_WORKSPACE_BYTES).unwrap();
                plan.candidates[0].engine.made_plan().unwrap().engine
            };
            assert_ne!(first(Precision::F32), WINOGRAD, "{form:?}");
            assert_eq!(first(Precision::Tf32), WINOGRAD, "{form:?}");
        }
    });
}
