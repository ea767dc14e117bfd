//! The network of these tests: batch norm has buffers, and dropout depends on the step.

use soybean::{Array, checkpoint::Progress, runtime::Trainer};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy, optimizer};
use soybean_plan::{DType, Init};

use soybean_test_support::models::{
    self, BATCH, Batch, CLASSES, FEATURES, HIDDEN, call, dense, finish,
};

/// Names and elements of the state, as bits.
pub(crate) type State = Vec<(String, Vec<u32>)>;

pub(crate) fn network(n_gpus: usize, strategy: &str, optimizer: Optimizer) -> Compiled {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[BATCH, FEATURES]);
    let y = builder.input("y", DType::I32, &[BATCH]);
    let hidden = dense(&mut builder, x, "first", HIDDEN);
    let constant = |value| Init::Constant(value);
    let mut norm = vec![
        hidden,
        builder.buffer("norm.running_mean", &[HIDDEN], constant(0.0)),
        builder.buffer("norm.running_var", &[HIDDEN], constant(1.0)),
        builder.parameter("norm.weight", &[HIDDEN], constant(1.0)),
        builder.parameter("norm.bias", &[HIDDEN], constant(0.0)),
    ];
    let numbers = [Argument::Float(0.1), Argument::Float(1e-5)];
    let arguments: Vec<Argument> = norm.drain(..).map(Argument::Tensor).chain(numbers).collect();
    let normal = call(&mut builder, "batch_norm", &arguments);
    let relu = call(&mut builder, "relu", &[Argument::Tensor(normal)]);
    let kept = call(&mut builder, "dropout", &[Argument::Tensor(relu), Argument::Float(0.25)]);
    let logits = dense(&mut builder, kept, "last", CLASSES);
    let loss =
        call(&mut builder, "cross_entropy", &[Argument::Tensor(logits), Argument::Tensor(y)]);
    let strategy: Strategy = strategy.parse().unwrap();
    finish(builder, loss, &[("logits".to_owned(), logits)], n_gpus, strategy, optimizer)
}

pub(crate) fn adam() -> Optimizer {
    optimizer("adam", &[]).unwrap()
}

/// Returns a trainer of the network with `adam`, with the best plan.
pub(crate) fn trainer(n_gpus: usize) -> Trainer {
    models::trainer(&network(n_gpus, "auto", adam()), 0.003)
}

/// Trains on the next batches; returns the losses.
pub(crate) fn train(trainer: &mut Trainer, n_steps: u64) -> Vec<f32> {
    let from = trainer.n_steps();
    let batch = |step| Batch::new(usize::try_from(step).unwrap());
    (from..from + n_steps).map(|step| trainer.step(&batch(step).views()).unwrap()).collect()
}

pub(crate) fn bits(arrays: Vec<(String, Array)>) -> State {
    let bits = |array: Array| array.data.into_iter().map(f32::to_bits).collect();
    arrays.into_iter().map(|(name, array)| (name, bits(array))).collect()
}

/// Returns the state that a checkpoint must store.
pub(crate) fn state(trainer: &mut Trainer) -> (u64, State) {
    let mut all = trainer.parameters().unwrap();
    all.extend(trainer.optimizer_state().unwrap());
    (trainer.n_steps(), bits(all))
}

pub(crate) fn progress(epoch: u64) -> Progress {
    let mut progress = Progress { epoch, batch: 3, seed: u64::MAX - 1, ..Progress::default() };
    progress.extra.insert("best".to_owned(), (0.1_f64 + 0.2).into());
    progress
}
