//! Models built by calls of the builder, for every number of devices and every strategy.

use std::{sync::Arc, time::Instant};

use soybean::{
    Config,
    runtime::{Trainer, View},
};
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, Strategy, Value, compile, optimizer,
};
use soybean_plan::{DType, Precision};

/// Samples in a batch.
pub const BATCH: usize = 24;
/// Features of a sample.
pub const FEATURES: usize = 12;
/// Units of a hidden layer.
pub const HIDDEN: usize = 24;
/// Classes of the labels.
pub const CLASSES: usize = 12;

/// Calls an operator whose result is a tensor.
pub fn call(builder: &mut Builder, operator: &str, arguments: &[Argument]) -> Value {
    match builder.call(operator, arguments) {
        Ok(Argument::Tensor(value)) => value,
        other => unreachable!("`{operator}` gives a tensor, found {other:?}"),
    }
}

/// Adds a dense layer whose parameters are `name.w` and `name.b`.
pub fn dense(builder: &mut Builder, x: Value, name: &str, units: usize) -> Value {
    let shape = [units, builder.shape(x)[1]];
    let normal = builder.init("he_normal", &[], &shape).expect("known");
    let zeros = builder.init("uniform", &[Argument::Float(-0.1), Argument::Float(0.1)], &[units]);
    let w = builder.parameter(&format!("{name}.w"), &shape, normal);
    let b = builder.parameter(&format!("{name}.b"), &[units], zeros.expect("known"));
    let turned = call(builder, "transpose", &[Argument::Tensor(w)]);
    let product = call(builder, "matmul", &[Argument::Tensor(x), Argument::Tensor(turned)]);
    call(builder, "add", &[Argument::Tensor(product), Argument::Tensor(b)])
}

/// Compiles a perceptron of three layers with logits and cross-entropy.
#[must_use]
pub fn perceptron(n_gpus: usize, strategy: Strategy, optimizer: Optimizer) -> Compiled {
    let (builder, loss, outputs) = perceptron_model();
    finish(builder, loss, &outputs, n_gpus, strategy, optimizer)
}

/// Builds the perceptron; returns the builder, the loss and the outputs.
#[must_use]
pub fn perceptron_model() -> (Builder, Value, [(String, Value); 1]) {
    perceptron_of(BATCH)
}

/// Builds the perceptron for a number of samples.
#[must_use]
pub fn perceptron_of(batch: usize) -> (Builder, Value, [(String, Value); 1]) {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[batch, FEATURES]);
    let y = builder.input("y", DType::I32, &[batch]);
    let mut h = x;
    for layer in ["first", "second"] {
        let sum = dense(&mut builder, h, layer, HIDDEN);
        h = call(&mut builder, "relu", &[Argument::Tensor(sum)]);
    }
    let logits = dense(&mut builder, h, "last", CLASSES);
    let loss =
        call(&mut builder, "cross_entropy", &[Argument::Tensor(logits), Argument::Tensor(y)]);
    (builder, loss, [("logits".to_owned(), logits)])
}

/// Compiles a model in `f32`.
pub fn finish(
    builder: Builder,
    loss: Value,
    outputs: &[(String, Value)],
    n_gpus: usize,
    strategy: Strategy,
    optimizer: Optimizer,
) -> Compiled {
    let precision = Precision::F32;
    let options =
        Options { name: "model".to_owned(), n_gpus, search: strategy.into(), precision, optimizer };
    finish_with(builder, loss, outputs, &options)
}

/// Compiles a model.
pub fn finish_with(
    builder: Builder,
    loss: Value,
    outputs: &[(String, Value)],
    options: &Options,
) -> Compiled {
    let started = Instant::now();
    let milliseconds = || started.elapsed().as_secs_f64() * 1e3;
    compile(builder, loss, outputs, options, &milliseconds).unwrap_or_else(|faults| {
        unreachable!("the model has no fault on {} ranks: {faults:?}", options.n_gpus)
    })
}

/// The seed of all trainers.
pub const SEED: u64 = 3;

/// Starts a trainer with [`SEED`].
#[must_use]
pub fn trainer(compiled: &Compiled, learning_rate: f32) -> Trainer {
    let config = Config { seed: SEED, learning_rate, ..Config::default() };
    Trainer::new_shared(Arc::new(compiled.program.clone()), config).expect("the program is sound")
}

/// Returns stochastic gradient descent with momentum.
#[must_use]
pub fn sgd(momentum: f64) -> Optimizer {
    optimizer("sgd", &[("momentum".to_owned(), Argument::Float(momentum))]).expect("known")
}

/// Returns the same numbers in `-1..1` for the same seed (Weyl's sequence of the golden ratio).
#[must_use]
pub fn numbers(n_numbers: usize, seed: usize) -> Vec<f64> {
    let number = |index: usize| ((index + 1 + 1000 * seed) as f64 * 0.618_033_988_749_895).fract();
    (0..n_numbers).map(|index| 2.0 * number(index) - 1.0).collect()
}

/// Rounds numbers to single precision.
#[expect(clippy::cast_possible_truncation, reason = "the result is rounded")]
#[must_use]
pub fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|number| *number as f32).collect()
}

/// A batch of the perceptron.
pub struct Batch {
    /// Features `[BATCH, FEATURES]`.
    pub x: Vec<f32>,
    /// Labels `[BATCH]`.
    pub y: Vec<i32>,
}

impl Batch {
    /// Returns the batch of a seed.
    pub fn new(seed: usize) -> Self {
        let classes = (0..).take(CLASSES).cycle();
        Self {
            x: single(&numbers(BATCH * FEATURES, seed)),
            y: classes.skip(seed).step_by(5).take(BATCH).collect(),
        }
    }

    /// Returns the batch as a trainer takes it.
    pub fn views(&self) -> [View<'_>; 2] {
        [View::F32(&self.x), View::I32(&self.y)]
    }
}
