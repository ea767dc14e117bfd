//! Tests of convolutions with a bias and an activation.

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus_without};

use super::{
    rivals::{n_chosen, on_tuned},
    *,
};
use crate::cuda::epilogue::Function;

/// The call of cuDNN that computes both.
const CALL: &str = "cudnnConvolutionBiasActivationForward";

fn epilogue(function: Function, bias: DType) -> Epilogue {
    Epilogue::new(function, Some(bias))
}

#[test]
fn forward_convolutions_with_channels_last_take_a_bias() {
    let last = Convolution { layout: ImageLayout::ChannelsLast, ..WIDE };
    let [f32, bf16] = [DType::F32, DType::Bf16];
    let takes = |convolution: Convolution, dtype: DType, epilogue: Epilogue| {
        takes_epilogue(&convolution, [dtype; 3], epilogue)
    };
    for dtype in [f32, bf16] {
        for function in [Function::Identity, Function::Relu] {
            assert!(takes(last, dtype, epilogue(function, dtype)));
            assert!(!takes(WIDE, dtype, epilogue(function, dtype)));
            for form in [ConvolutionForm::Data, ConvolutionForm::Filter] {
                assert!(!takes(Convolution { form, ..last }, dtype, epilogue(function, dtype)));
            }
        }
        assert!(!takes(last, dtype, epilogue(Function::ReluAux, dtype)));
        assert!(!takes(last, dtype, epilogue(Function::Gelu, dtype)));
        assert!(!takes(last, dtype, Epilogue::new(Function::Relu, None)));
    }
    assert!(!takes(last, bf16, epilogue(Function::Relu, f32)));
    assert!(!takes(Convolution { result: [2, 4], ..last }, f32, epilogue(Function::Relu, f32)));
}

/// Computes all convolutions with channels last, with each activation, twice, and compares them
/// with plain loops. Returns the number of kernels.
fn check(dtype: DType, precision: Precision, autotunes: bool) -> u64 {
    let gpu = &gpus(1)[0];
    let convolutions: Vec<Convolution> =
        convolutions().into_iter().filter(|it| it.layout == ImageLayout::ChannelsLast).collect();
    let kernels: Vec<Kernel> = convolutions.iter().map(|it| (*it).into()).collect();
    let call = |function: Function, kernel: usize| KernelCall {
        kernel,
        inputs: vec![dtype; 3],
        results: vec![dtype],
        epilogue: epilogue(function, dtype),
    };
    let functions = [Function::Identity, Function::Relu];
    let calls = functions.iter().flat_map(|it| (0..kernels.len()).map(|kernel| call(*it, kernel)));
    let calls: Vec<KernelCall> = calls.collect();
    let made = compiled(gpu, &kernels, &calls, precision, autotunes);
    let stream = Stream::new(gpu, Priority::Normal).unwrap();
    let workspace = DeviceMemory::zeroed(gpu, made.workspace_bytes(), "the workspace").unwrap();
    for (number, call) in calls.iter().enumerate() {
        for _ in 0..2 {
            compare(&convolutions[call.kernel], call, |inputs, results| {
                let operands = KernelOperands::plain(inputs, results, workspace.address(0));
                // SAFETY: the allocations are as large as the convolution requires, and live until
                // the stream is done.
                unsafe { made.run(number, &stream, operands) }.unwrap();
                stream.synchronize().unwrap();
            });
        }
    }
    calls.len() as u64
}

/// Runs a convolution and compares it with plain loops.
fn compare(convolution: &Convolution, call: &KernelCall, run: impl Fn(&[u64], &[u64])) {
    let (gpu, dtype) = (&gpus(1)[0], call.results[0]);
    let n_channels = convolution.groups * convolution.filters;
    let [images, filters, results] = sizes(convolution);
    let sizes = (1..).zip([images, filters, n_channels, results]);
    let mut tensors: Vec<HostTensor> =
        sizes.map(|(seed, size)| HostTensor::new(dtype, size, seed)).collect();
    let memories: Vec<DeviceMemory> = tensors.iter().map(|it| it.upload(gpu)).collect();
    let at: Vec<u64> = memories.iter().map(|it| it.address(0)).collect();
    run(&at[..3], &at[3..]);
    let values = |absolute: fn(f64) -> f64| -> Vec<f64> {
        let of = |tensor: &HostTensor| -> Vec<f64> {
            tensor.values.iter().map(|it| absolute(f64::from(*it))).collect()
        };
        let bias = of(&tensors[2]);
        let sums = convolution.evaluate(&[&of(&tensors[0]), &of(&tensors[1])], &[]).remove(0);
        sums.iter().enumerate().map(|(at, it)| it + bias[at % n_channels]).collect()
    };
    let (sums, terms) = (values(|it| it), values(f64::abs));
    tensors[3].download(&memories[3]);
    // Without the call of cuDNN, sums are rounded to `bf16` twice, by 2^-8 each. In `tf32`,
    // operands are rounded.
    let unit = if dtype == DType::Bf16 { 2_f64.powi(-7) } else { 2_f64.powi(-10) };
    for ((found, sum), size) in tensors[3].values.iter().zip(sums).zip(terms) {
        let expected = if call.epilogue.function == Function::Relu { sum.max(0.0) } else { sum };
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= unit * size + 1e-30, "{convolution:?} {call:?}: {found}, not {expected}");
    }
}

/// Checks all types. Returns the number of kernels.
fn check_all(autotunes: bool) -> u64 {
    check(DType::F32, Precision::Tf32, autotunes) + check(DType::Bf16, Precision::Bf16, autotunes)
}

fn on_gpus(left_out: &[&str], test: &str, settings: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    let path = format!("cuda::convolution::tests::epilogues::{test}");
    on_virtual_gpus_without(left_out, &path, settings, body);
}

#[test]
fn cudnn_adds_biases_and_applies_relu() {
    on_gpus(&[], "cudnn_adds_biases_and_applies_relu", &[], |machine| {
        let n_kernels = check_all(false);
        assert_eq!(machine.n_calls(CALL), 2 * n_kernels);
        assert_eq!(machine.n_calls("cudnnConvolutionForward"), 0);
    });
}

#[test]
fn kernels_follow_where_cudnn_refuses() {
    let settings = [("SOYBEAN_FAKE_NO_ACTIVATIONS", "1")];
    on_gpus(&[], "kernels_follow_where_cudnn_refuses", &settings, |machine| {
        let n_kernels = check_all(false);
        // It is asked only once.
        assert_eq!(machine.n_calls(CALL), n_kernels);
        assert_eq!(machine.n_calls("cudnnConvolutionForward"), 2 * n_kernels);
    });
}

#[test]
fn generated_kernels_add_biases_without_cudnn() {
    on_gpus(&["cudnn"], "generated_kernels_add_biases_without_cudnn", &[], |_| {
        check_all(false);
    });
}

/// Measures all convolutions, checks them, and returns how many run with their epilogue, without
/// it, and by the generated kernel.
fn n_measured(machine: &Machine) -> [usize; 3] {
    check_all(true);
    assert_eq!(machine.n_complaints(), 0);
    n_chosen()
}

fn on_tuned_gpus(test: &str, settings: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    on_tuned("epilogues", test, settings, body);
}

#[test]
fn the_fastest_of_epilogues_and_generated_kernels_runs() {
    on_tuned_gpus("the_fastest_of_epilogues_and_generated_kernels_runs", &[], |machine| {
        // Times of virtual GPUs are random, but two kernels take longer than one.
        let [with_epilogue, _, generated] = n_measured(machine);
        assert!(with_epilogue > 0 && generated > 0, "{with_epilogue}, {generated}");
    });
}

#[test]
fn refused_epilogues_are_not_chosen() {
    let settings = [("SOYBEAN_FAKE_NO_ACTIVATIONS", "1")];
    on_tuned_gpus("refused_epilogues_are_not_chosen", &settings, |machine| {
        let [with_epilogue, without, generated] = n_measured(machine);
        assert_eq!(with_epilogue, 0);
        assert!(without > 0 && generated > 0, "{without}, {generated}");
    });
}
