//! Tests of the unchanged CUDA backend on virtual GPUs: the losses equal the CPU's in any order of
//! the streams, and every failure gives an error.
#![expect(clippy::print_stdout, reason = "the output shows skipped tests and errors")]

mod autotuning;
mod calls;
mod checkpoints;
mod custom_operators;
mod faults;
mod inference;
mod joined_products;
mod libraries;
mod memory;
mod networks;
mod operators;
mod schedules;
mod sequences;
mod sparse_updates;
mod split_images;
mod trainers;

use soybean::{
    Config, DataOptions, Device, Network,
    data::{Batch, DataLoader, LoaderOptions},
    runtime::Trainer,
};

use crate::examples::{cnn_digits::cnn_digits, digits::digits, digits_data};

/// Number of compared steps: one kernel by kernel, then the graphs of both slots.
const N_STEPS: usize = 4;

/// Returns batches of the digits in the order of the data.
fn loader() -> DataLoader {
    let dataset = digits_data::load(&DataOptions::default()).unwrap().train;
    DataLoader::new(dataset, LoaderOptions::evaluation(32)).unwrap()
}

fn trainer<N: Network>(device: Device, uses_graphs: bool) -> Trainer {
    let config = Config { device, learning_rate: 0.05, uses_graphs, ..Config::default() };
    Trainer::new(N::model(), config).unwrap()
}

/// Returns the losses of some steps, then that of an evaluation.
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

/// The tolerance covers reordered single-precision sums of some hundred terms over a few training
/// steps.
fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert!(is_close(found, expected), "{what}: expected {expected:?}, found {found:?}");
}

fn is_close(found: &[f32], expected: &[f32]) -> bool {
    let is_near =
        |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-4 * expected.abs();
    found.len() == expected.len() && found.iter().zip(expected).all(is_near)
}
