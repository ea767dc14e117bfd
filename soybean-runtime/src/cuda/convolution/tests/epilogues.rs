//! Tests of convolutions with a bias and an activation, or with the gradient of one.

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus_without};

use super::{
    rivals::{choices, n_chosen, number, on_tuned},
    *,
};

/// Returns the epilogue of this function in a call whose operands have one type.
fn epilogue(function: Function, dtype: DType) -> Epilogue {
    let has_bias = function != Function::ReluGradient;
    Epilogue::new(function, has_bias.then_some(dtype))
}

#[test]
fn convolutions_with_channels_last_take_epilogues() {
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
        assert!(!takes(last, dtype, epilogue(Function::Gelu, dtype)));
        assert!(!takes(last, dtype, epilogue(Function::Gelu, dtype)));
        assert!(!takes(last, dtype, Epilogue::new(Function::Relu, None)));
        let gradient = epilogue(Function::ReluGradient, dtype);
        let data = Convolution { form: ConvolutionForm::Data, ..last };
        assert!(takes(data, dtype, gradient));
        assert!(!takes(last, dtype, gradient));
        assert!(!takes(Convolution { channels: 12, ..data }, dtype, gradient));
    }
    assert!(!takes(last, bf16, epilogue(Function::Relu, f32)));
    assert!(!takes(Convolution { result: [2, 4], ..last }, f32, epilogue(Function::Relu, f32)));
}

/// Returns the forward convolutions with channels last, each with two functions, and gradients of
/// images with that of ReLU.
fn cases() -> Vec<(Convolution, Function)> {
    let last = convolutions().into_iter().filter(|it| it.layout == ImageLayout::ChannelsLast);
    let forward = last.flat_map(|it| [(it, Function::Identity), (it, Function::Relu)]);
    let gradient = Convolution {
        form: ConvolutionForm::Data,
        layout: ImageLayout::ChannelsLast,
        filters: 24,
        ..WIDE
    };
    let gradients = [gradient, Convolution { groups: 2, ..gradient }];
    forward.chain(gradients.map(|it| (it, Function::ReluGradient))).collect()
}

/// Computes all cases twice, and compares them with plain loops. Returns the number of kernels.
fn check(dtype: DType, precision: Precision, autotunes: bool) -> u64 {
    let (gpu, cases) = (&gpus(1)[0], cases());
    let kernels: Vec<Kernel> = cases.iter().map(|it| it.0.into()).collect();
    let call = |(kernel, (_, function)): (usize, &(Convolution, Function))| KernelCall {
        kernel,
        inputs: vec![dtype; 3],
        results: vec![dtype],
        epilogue: epilogue(*function, dtype),
        checked: Vec::new(),
    };
    let calls: Vec<KernelCall> = cases.iter().enumerate().map(call).collect();
    let made = compiled(gpu, &kernels, &calls, precision, autotunes);
    let stream = Stream::new(gpu, Priority::Normal).unwrap();
    let workspace = DeviceMemory::zeroed(gpu, made.workspace_bytes(), "the workspace").unwrap();
    for (number, call) in calls.iter().enumerate() {
        for _ in 0..2 {
            compare(&cases[number].0, call, |inputs, results| {
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
    let (gpu, dtype, function) = (&gpus(1)[0], call.results[0], call.epilogue.function);
    let n_channels = convolution.groups * convolution.filters;
    let [images, filters, results] = sizes(convolution);
    let sizes = match convolution.form {
        ConvolutionForm::Data => [results, filters, images, images],
        _ => [images, filters, n_channels, results],
    };
    let mut tensors: Vec<HostTensor> =
        (1..).zip(sizes).map(|(seed, size)| HostTensor::new(dtype, size, seed)).collect();
    let memories: Vec<DeviceMemory> = tensors.iter().map(|it| it.upload(gpu)).collect();
    let at: Vec<u64> = memories.iter().map(|it| it.address(0)).collect();
    run(&at[..3], &at[3..]);
    let values = |absolute: fn(f64) -> f64| -> Vec<f64> {
        let of = |tensor: &HostTensor| -> Vec<f64> {
            tensor.values.iter().map(|it| absolute(f64::from(*it))).collect()
        };
        let bias = of(&tensors[2]);
        let sums = convolution.evaluate(&[&of(&tensors[0]), &of(&tensors[1])], &[]).remove(0);
        let value = |(at, it): (usize, &f64)| match function {
            Function::ReluGradient => *it,
            _ => it + bias[at % n_channels],
        };
        sums.iter().enumerate().map(value).collect()
    };
    let (sums, terms) = (values(|it| it), values(f64::abs));
    tensors[3].download(&memories[3]);
    // Without the call of cuDNN, sums are rounded to `bf16` twice, by 2^-8 each. In `tf32`,
    // operands are rounded.
    let unit = if dtype == DType::Bf16 { 2_f64.powi(-7) } else { 2_f64.powi(-10) };
    for (at, ((found, sum), size)) in tensors[3].values.iter().zip(sums).zip(terms).enumerate() {
        let expected = match function {
            Function::Relu => sum.max(0.0),
            Function::ReluGradient if tensors[2].values[at] <= 0.0 => 0.0,
            _ => sum,
        };
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

/// Returns how many convolutions cuDNN has computed with their epilogue, and without it.
fn n_computed(machine: &Machine) -> [u64; 2] {
    let n = |suffix: &str| {
        ["forward", "data"].map(|it| machine.n_calls(&format!("cudnn: {it}{suffix}"))).iter().sum()
    };
    [n(" with epilogue"), n("")]
}

#[test]
fn cudnn_applies_epilogues() {
    on_gpus(&[], "cudnn_applies_epilogues", &[], |machine| {
        let n_kernels = check_all(false);
        assert_eq!(n_computed(machine), [2 * n_kernels, 0]);
    });
}

#[test]
fn kernels_follow_where_cudnn_refuses() {
    let settings = [("SOYBEAN_FAKE_NO_ACTIVATIONS", "1")];
    on_gpus(&[], "kernels_follow_where_cudnn_refuses", &settings, |machine| {
        let n_kernels = check_all(false);
        assert_eq!(n_computed(machine), [0, 2 * n_kernels]);
    });
}

#[test]
fn generated_kernels_apply_epilogues_without_cudnn() {
    on_gpus(&["cudnn"], "generated_kernels_apply_epilogues_without_cudnn", &[], |_| {
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

#[test]
fn engines_that_lose_nan_are_not_chosen() {
    let settings = [("SOYBEAN_FAKE_RELU_DROPS_NAN", "1")];
    on_tuned_gpus("engines_that_lose_nan_are_not_chosen", &settings, |machine| {
        let [with_epilogue, ..] = n_measured(machine);
        assert!(with_epilogue > 0);
        // The second engine for a bias and ReLU is one of them.
        let of_relu = |it: &String| it.ends_with("keeps NaN");
        let numbers = choices().into_iter().filter(of_relu).map(|it| number(&it));
        let numbers: Vec<Option<usize>> = numbers.collect();
        assert!(!numbers.is_empty() && !numbers.contains(&Some(1)), "{numbers:?}");
    });
}
