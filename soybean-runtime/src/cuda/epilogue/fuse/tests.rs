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

/// Allows all fusions.
fn allow_all(_: &Kernel, _: [DType; 3], _: Epilogue) -> bool {
    true
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
fn relu_is_fused_with_its_gradient_and_bias_gradient() {
    let model = Perceptron::new(Activation::Relu, true).with_compiled_offsets();
    let fused = fused(&model, &allow_all);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    assert_eq!(
        lines[..3],
        [
            "b10 = matmul (b0, b2) relu-aux + b3, slot 0",
            "b12 = matmul (b10, b4) relu-aux + b5, slot 1",
            "b14 = matmul (b12, b6) identity + b7",
        ]
    );
    let gradients: Vec<&String> = lines.iter().filter(|it| it.contains("gradient")).collect();
    assert_eq!(
        gradients,
        [
            "b24, b25 = matmul (b20, b6) relu-gradient, slot 1",
            "b28, b29 = matmul (b24, b4) relu-gradient, slot 0",
        ]
    );
    // Rows of bits, padded to multiples of 128.
    assert_eq!(fused.slots, [64 * 128 / 8, 64 * 128 / 8]);
}

#[test]
fn gelu_is_fused_with_its_gradient_in_the_buffer_of_the_product() {
    let model = Perceptron::new(Activation::Gelu, true).with_compiled_offsets();
    let fused = fused(&model, &allow_all);
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
        let fused = fused(&model, &allow_all);
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

#[test]
fn functions_are_fused_without_unsupported_gradients() {
    let forward = |_: &Kernel, _: [DType; 3], it: Epilogue| !it.has_aux();
    let model = Perceptron::new(Activation::Relu, true).with_compiled_offsets();
    let relu = fused(&model, &forward);
    check(&model, &relu);
    assert_eq!(text(&relu, &model.kernels)[0], "b10 = matmul (b0, b2) relu + b3");
    assert!(relu.slots.is_empty());
    // The gradient of gelu needs its argument, which only a product with an auxiliary output
    // stores.
    let model = Perceptron::new(Activation::Gelu, true).with_compiled_offsets();
    let fused = fused(&model, &forward);
    check(&model, &fused);
    assert_eq!(text(&fused, &model.kernels)[0], "b9 = contraction (b0, b2)");
}

#[test]
fn biases_are_rounded_for_rounded_products() {
    let model = Perceptron::new(Activation::Relu, true).rounded();
    let with_rounded_bias =
        |_: &Kernel, types: [DType; 3], it: Epilogue| it.bias.is_none_or(|bias| bias == types[2]);
    let fused = fused(&model, &with_rounded_bias);
    check(&model, &fused);
    let lines = text(&fused, &model.kernels);
    assert_eq!(
        lines[..2],
        ["slot 1 = round b3", "b10 = matmul (b0, b2) relu-aux + slot 1, slot 0"]
    );
    // A copy of the bias replaces the rounding.
    let copies = Rounded::from([(3, 30)]);
    let with_copy = fuse(&model.steps, &model.kernels, &model.tables, &copies, &with_rounded_bias);
    assert_eq!(text(&with_copy, &model.kernels)[0], "b10 = matmul (b0, b2) relu-aux + b30, slot 0");
    // The row sums are needed in single precision, as the gradients of the weights are.
    let has = |line: &str| assert!(lines.contains(&line.to_owned()), "{line}: {lines:#?}");
    has("b24 = matmul (b20, b6) relu-gradient, slot 2");
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
    let fused = fused(&model, &allow_all);
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
    let lines = text(&fused(&model, &allow_all), &model.kernels);
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
        (Kernel::Convolve(_), function) => function == Function::ReluGradientByResult,
        (_, function) => function != Function::ReluGradientByResult,
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
            "b24 = convolution (b20, b6) relu-gradient-by-result, buffer 12",
            "b28 = convolution (b24, b4) relu-gradient-by-result, buffer 10",
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
    let lines = text(&fused(&model, &allow_all), &model.kernels);
    assert_eq!(lines[..2], ["b3 = map (b3, b3)", "b10 = matmul (b0, b2) relu + b3"]);
}

#[test]
fn steps_keep_their_meaning_in_all_memory_plans() {
    let mut n_fused = 0;
    for seed in 0..24 {
        let activation = if seed % 2 == 0 { Activation::Relu } else { Activation::Gelu };
        let model =
            Perceptron::new(activation, seed % 3 > 0).shuffled(seed).with_random_offsets(seed);
        let fused = fused(&model, &allow_all);
        check(&model, &fused);
        n_fused += fused.steps.iter().filter(|it| matches!(it, FusedStep::Product(_))).count();
    }
    // Most of the five of each model.
    assert!(n_fused > 24 * 3, "{n_fused}");
}
