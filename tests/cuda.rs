//! The CUDA backend, unchanged, on virtual GPUs: the CPU's losses whatever order the streams run in, and an error for whatever can go wrong.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(
    clippy::print_stdout,
    reason = "what is skipped, and why something failed, is for who reads the output"
)]
#![expect(clippy::duplicate_mod, reason = "both examples have the module of their data")]

#[path = "cuda/calls.rs"]
mod calls;
#[path = "cuda/checkpoints.rs"]
mod checkpoints;
#[path = "../examples/cnn_digits.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example has a main function, and is public there"
)]
mod cnn_digits_example;
#[path = "../examples/data/digits.rs"]
mod data;
#[path = "../examples/digits.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example has a main function, and is public there"
)]
mod digits_example;
#[path = "cuda/faults.rs"]
mod faults;
#[path = "../examples/networks/gpt.rs"]
mod gpt;
#[path = "cuda/inference.rs"]
mod inference;
#[path = "support/joined.rs"]
mod joined;
#[path = "cuda/libraries.rs"]
mod libraries;
#[path = "support/models.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod models;
#[path = "cuda/networks.rs"]
mod networks;
#[path = "cuda/operators.rs"]
mod operators;
#[path = "support/samples.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod samples;
#[path = "cuda/schedules.rs"]
mod schedules;
#[path = "support/virtual_gpus.rs"]
mod virtual_gpus;

use cnn_digits_example::cnn_digits;
use digits_example::digits;
use soybean::{
    Config, DataOptions, Device, Network,
    data::{Batch, DataLoader, LoaderOptions},
    runtime::Trainer,
};

/// The steps whose losses are compared: one by kernels, then graphs of both slots.
const N_STEPS: usize = 4;

/// Batches of the digits, in the order of the data.
fn loader() -> DataLoader {
    let dataset = data::load(&DataOptions::default()).unwrap().train;
    DataLoader::new(dataset, LoaderOptions::evaluation(32)).unwrap()
}

fn trainer<N: Network>(device: Device, uses_graphs: bool) -> Trainer {
    let config = Config { device, learning_rate: 0.05, uses_graphs, ..Config::default() };
    Trainer::new(N::model(), config).unwrap()
}

/// The losses of some steps, then that of an evaluation.
fn losses(trainer: &mut Trainer) -> Vec<f32> {
    let mut loader = loader();
    let mut next = || loader.next().unwrap().unwrap();
    let mut losses = Vec::new();
    trainer.queue(&next().views()).unwrap();
    for step in 1..=N_STEPS {
        let next = (step < N_STEPS).then(&mut next);
        let next = next.as_ref().map(Batch::views);
        losses.push(trainer.step_queued(next.as_deref()).unwrap());
    }
    losses.push(trainer.evaluate(&next().views()).unwrap().loss);
    losses
}

/// Sums of some hundred terms in single precision, in another order, over a few steps of training.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert!(is_close(found, expected), "{what}: expected {expected:?}, found {found:?}");
}

fn is_close(found: &[f32], expected: &[f32]) -> bool {
    let is_near =
        |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-4 * expected.abs();
    found.len() == expected.len() && found.iter().zip(expected).all(is_near)
}
