//! Tests that fused steps compute the same as the original steps, in any memory plan.

mod formulas;
mod interpreter;
mod perceptron;

use soybean_plan::{Convolution, DType, Kernel};

use self::{
    interpreter::{Interpreter, text},
    perceptron::{Activation, Perceptron},
};
use super::*;

/// Allows what the libraries support.
fn allow_supported(kernel: &Kernel, _: [DType; 3], epilogue: Epilogue) -> bool {
    !matches!(kernel, Kernel::Contract(_)) || epilogue.function != Function::ReluGradient
}

fn fused(model: &Perceptron, can: CanFuse<'_>) -> Fused {
    fuse(&model.steps, &model.kernels, &model.tables, &Rounded::new(), can)
}

/// Checks that the fused steps leave the same values in all lasting_values buffers.
#[track_caller]
fn check(model: &Perceptron, fused: &Fused) {
    let plain: Vec<FusedStep> = model.steps.iter().cloned().map(FusedStep::Plain).collect();
    let run = |steps: &[FusedStep], slots: &[usize]| {
        let mut interpreter = Interpreter::new(&model.tables, &model.kernels, slots);
        // The second round shows the state that a step leaves for the next.
        (0..2).for_each(|_| steps.iter().for_each(|it| interpreter.run(it)));
        interpreter.lasting_values()
    };
    let (expected, found) = (run(&plain, &[]), run(&fused.steps, &fused.slots));
    for ((name, expected), (_, found)) in expected.iter().zip(&found) {
        for (one, other) in expected.iter().zip(found) {
            // Reordering changes results in double precision slightly.
            assert!((one - other).abs() <= 1e-9 * (1.0 + one.abs()), "{name}: {one}, but {other}");
        }
    }
    assert!(expected.iter().all(|(_, it)| it.iter().all(|it| it.is_finite())));
}

#[test]
fn relu_is_fused_and_sums_of_its_gradient_move_into_the_gradients_of_weights() {
    let model = Perceptron::new(Activation::Relu, true).with_separate_buffers();
    let fused = fused(&model, &allow_supported);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    let products: Vec<&String> = lines.iter().filter(|it| it.contains("matmul")).collect();
    assert_eq!(
        products,
        [
            "b10 = matmul (b0, b2) relu + b3",
            "b12 = matmul (b10, b4) relu + b5",
            "b14 = matmul (b12, b6) identity + b7",
            "b23, b21 = matmul (b12, b20) right-sums",
            "b27, b25 = matmul (b10, b24) right-sums",
            "b30, b29 = matmul (b0, b28) right-sums",
        ]
    );
    assert!(lines.contains(&"b24 = map (b12, b22)".to_owned()), "{lines:#?}");
    assert_eq!(fused.slots, [0_usize; 0]);
}

#[test]
fn gelu_is_fused_with_its_gradient_in_the_buffer_of_the_product() {
    let model = Perceptron::new(Activation::Gelu, true).with_compiled_offsets();
    let fused = fused(&model, &allow_supported);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    let gelu: Vec<&String> = lines.iter().filter(|it| it.contains("gelu")).collect();
    assert_eq!(
        gelu,
        [
            "b10, b9 = matmul (b0, b2) gelu-aux + b3, buffer 9",
            "b12, b11 = matmul (b10, b4) gelu-aux + b5, buffer 11",
            // The row sums use the memory of these buffers later.
            "b24 = matmul (b20, b6) gelu-gradient, buffer 11",
            "b28 = matmul (b24, b4) gelu-gradient, buffer 9",
        ]
    );
    assert_eq!(fused.slots, [0_usize; 0]);
}

#[test]
fn evaluations_need_no_auxiliary_buffers() {
    for (activation, name) in [(Activation::Relu, "relu"), (Activation::Gelu, "gelu")] {
        let mut model = Perceptron::new(activation, true).with_compiled_offsets();
        model.steps.truncate(6);
        let fused = fused(&model, &allow_supported);
        let expected = [
            format!("b10 = matmul (b0, b2) {name} + b3"),
            format!("b12 = matmul (b10, b4) {name} + b5"),
            "b14 = matmul (b12, b6) identity + b7".to_owned(),
        ];
        assert_eq!(text(&fused, &model.kernels), expected);
    }
}

#[test]
fn unsupported_epilogues_change_nothing() {
    let model = Perceptron::new(Activation::Relu, true).with_compiled_offsets();
    let fused = fused(&model, &|_, _, _| false);
    let plain: Vec<FusedStep> = model.steps.iter().cloned().map(FusedStep::Plain).collect();
    assert_eq!(fused, Fused { steps: plain, slots: Vec::new() });
}

/// The gradient of gelu needs its argument, which only a product with an auxiliary output stores.
#[test]
fn gelu_with_a_gradient_needs_an_auxiliary_output() {
    let model = Perceptron::new(Activation::Gelu, true).with_compiled_offsets();
    let fused = fused(&model, &|_, _, epilogue| !epilogue.has_aux());
    check(&model, &fused);
    assert_eq!(text(&fused, &model.kernels)[0], "b9 = contraction (b0, b2)");
}

#[test]
fn biases_are_rounded_for_rounded_products() {
    let model = Perceptron::new(Activation::Relu, true).rounded();
    let with_rounded_bias = |kernel: &Kernel, types: [DType; 3], it: Epilogue| {
        allow_supported(kernel, types, it) && it.bias.is_none_or(|bias| bias == types[2])
    };
    let fused = fused(&model, &with_rounded_bias);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    assert_eq!(lines[..2], ["slot 0 = round b3", "b10 = matmul (b0, b2) relu + slot 0"]);
    // A copy of the bias replaces the rounding.
    let copies = Rounded::from([(3, 30)]);
    let with_copy = fuse(&model.steps, &model.kernels, &model.tables, &copies, &with_rounded_bias);
    assert_eq!(text(&with_copy, &model.kernels)[0], "b10 = matmul (b0, b2) relu + b30");
    // The row sums are needed in single precision, as the gradients of the weights are.
    let has = |line: &str| assert!(lines.contains(&line.to_owned()), "{line}: {lines:#?}");
    has("b27, b25 = matmul (b10, b24) right-sums");
}

#[test]
fn results_with_other_readers_are_kept() {
    let mut model = Perceptron::new(Activation::Relu, true).with_separate_buffers();
    let (contraction, map) = (model.steps[0].results[0], model.steps[1].results[0]);
    // The first layer's gradient reads the product itself, not the result of relu.
    for step in &mut model.steps[2..] {
        let is_product = matches!(model.kernels[step.kernel], Kernel::Contract(_));
        step.inputs
            .iter_mut()
            .filter(|it| **it == map && is_product)
            .for_each(|it| *it = contraction);
    }
    let fused = fused(&model, &allow_supported);
    check(&model, &fused);
    assert_eq!(text(&fused, &model.kernels)[0], "b9 = contraction (b0, b2)");
}

#[test]
fn fetched_results_are_kept() {
    let mut model = Perceptron::new(Activation::Relu, true).with_separate_buffers();
    model.steps.truncate(6);
    let mut outputs = model.tables.outputs.to_vec();
    outputs[0].buffer = model.steps[4].results[0];
    model.tables.outputs = outputs.into();
    let lines = text(&fused(&model, &allow_supported), &model.kernels);
    assert_eq!(lines[2..], ["b13 = contraction (b12, b6)", "b14 = map (b13, b7)"]);
}

#[test]
fn bias_gradients_move_into_the_gradients_of_weights() {
    let is_sum = |it: &Epilogue| matches!(it.function, Function::LeftSums | Function::RightSums);
    let mut n_fused = 0;
    for seed in 0..24 {
        let model = Perceptron::new(Activation::Relu, true).shuffled(seed);
        let model = match seed {
            0 => model.with_separate_buffers(),
            _ => model.with_random_offsets(seed),
        };
        let fused = fused(&model, &|_, _, epilogue| is_sum(&epilogue));
        check(&model, &fused);
        let n = fused.steps.iter().filter(|it| matches!(it, FusedStep::Product(_))).count();
        assert!(seed != 0 || n == 3, "{n}");
        n_fused += n;
    }
    // Most of the three of each model.
    assert!(n_fused > 24 * 2, "{n_fused}");
}

/// Replaces the products of layers and the gradients of their inputs by convolutions of one pixel,
/// with channels last.
fn with_convolutions(mut model: Perceptron) -> Perceptron {
    let weights = [2, 4, 6];
    for at in 0..model.kernels.len() {
        let Kernel::Contract(contraction) = &model.kernels[at] else { continue };
        let Contraction { rows, columns, depth, .. } = *contraction;
        let is_layer =
            model.steps.iter().position(|it| it.kernel == at && weights.contains(&it.inputs[1]));
        let Some(step) = is_layer else { continue };
        let (form, channels, filters) = match step {
            0..6 => (ConvolutionForm::Forward, depth, columns),
            _ => (ConvolutionForm::Data, columns, depth),
        };
        let convolution = Convolution {
            form,
            batch: rows,
            groups: 1,
            channels,
            filters,
            image: [1; 2],
            window: [1; 2],
            result: [1; 2],
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            layout: ImageLayout::ChannelsLast,
        };
        model.kernels[at] = convolution.into();
    }
    model
}

#[test]
fn convolutions_take_a_bias_and_relu_and_its_gradient() {
    let new = || with_convolutions(Perceptron::new(Activation::Relu, true));
    let can = |kernel: &Kernel, _: [DType; 3], it: Epilogue| match (kernel, it.function) {
        (Kernel::Convolve(_), Function::Identity | Function::Relu) => it.bias.is_some(),
        (Kernel::Convolve(_), function) => function == Function::ReluGradient,
        (_, function) => function != Function::ReluGradient,
    };
    let model = new().with_separate_buffers();
    let fused = fused(&model, &can);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    let convolutions: Vec<&String> = lines.iter().filter(|it| it.contains("convol")).collect();
    assert_eq!(
        convolutions,
        [
            "b10 = convolution (b0, b2) relu + b3",
            "b12 = convolution (b10, b4) relu + b5",
            "b14 = convolution (b12, b6) identity + b7",
            "b24 = convolution (b20, b6) relu-gradient, buffer 12",
            "b28 = convolution (b24, b4) relu-gradient, buffer 10",
        ]
    );
    for seed in 0..12 {
        let model = new().with_random_offsets(seed);
        let fused = fuse(&model.steps, &model.kernels, &model.tables, &Rounded::new(), &can);
        check(&model, &fused);
    }
}

#[test]
fn products_wait_for_their_biases() {
    let mut model = Perceptron::new(Activation::Relu, true).with_separate_buffers();
    model.steps.truncate(6);
    // An early update of the bias. The gradient is any vector of its size.
    let update =
        model.kernels.iter().position(|it| matches!(it, Kernel::Map(it) if it.extents[..] == [48]));
    let update = Step { kernel: update.unwrap(), inputs: vec![3, 3], results: vec![3] };
    model.steps.insert(1, update);
    let lines = text(&fused(&model, &allow_supported), &model.kernels);
    assert_eq!(lines[..2], ["b3 = map (b3, b3)", "b10 = matmul (b0, b2) relu + b3"]);
}

#[test]
fn steps_keep_their_meaning_in_all_memory_plans() {
    let mut n_fused = 0;
    for seed in 0..24 {
        let activation = if seed % 2 == 0 { Activation::Relu } else { Activation::Gelu };
        let model =
            Perceptron::new(activation, seed % 3 > 0).shuffled(seed).with_random_offsets(seed);
        let fused = fused(&model, &allow_supported);
        check(&model, &fused);
        n_fused += fused.steps.iter().filter(|it| matches!(it, FusedStep::Product(_))).count();
    }
    // Most of the five of each model.
    assert!(n_fused > 24 * 3, "{n_fused}");
}
