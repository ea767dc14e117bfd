//! The CUDA backend, unchanged, on virtual GPUs: the CPU's losses whatever order the streams run in, and an error for whatever can go wrong.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../examples/cnn_digits.rs"]
#[expect(dead_code, reason = "an example has a main function")]
mod cnn_digits_example;
#[path = "../examples/data/digits.rs"]
mod data;
#[path = "../examples/digits.rs"]
#[expect(dead_code, reason = "an example has a main function")]
mod digits_example;
#[path = "support/virtual_gpus.rs"]
mod virtual_gpus;

use cnn_digits_example::cnn_digits;
use digits_example::digits;
use soybean::{
    Config, DataOptions, Device, Network, Trainer,
    data::{Batch, Dataset},
    runtime::{self, View},
};
use virtual_gpus::{Machine, on_virtual_gpus};

const N_SEEDS: u64 = 100;
const N_STEPS: usize = 4;

fn dataset() -> Dataset {
    data::load(&DataOptions::default()).unwrap().train
}

fn trainer<N: Network>(device: Device, uses_graphs: bool) -> runtime::Trainer {
    let config = Config { device, learning_rate: 0.05, uses_graphs, ..Config::default() };
    runtime::Trainer::new(N::model(), config).unwrap()
}

fn views<'b>(batch: &Batch<'b>) -> Vec<View<'b>> {
    (0..batch.n_columns()).map(|column| batch.view(column)).collect()
}

/// The losses of some steps, then that of an evaluation.
fn losses(trainer: &mut runtime::Trainer, dataset: &Dataset) -> Vec<f32> {
    let mut batches = dataset.batches(32).unwrap();
    let mut losses = Vec::new();
    let first = batches.next_whole().unwrap();
    trainer.queue(&views(&first)).unwrap();
    for step in 1..=N_STEPS {
        let next = if step < N_STEPS { batches.next_whole() } else { None };
        let next = next.as_ref().map(views);
        losses.push(trainer.step_queued(next.as_deref()).unwrap());
    }
    losses.push(trainer.evaluate(&views(&batches.next_whole().unwrap())).unwrap().loss);
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

/// Training in many orders of the streams, with graphs and without.
fn trains_as_on_the_cpu<N: Network>(machine: &Machine, seeds: impl Iterator<Item = u64>) {
    let dataset = dataset();
    let mut on_cpu = trainer::<N>(Device::Cpu, true);
    let expected = losses(&mut on_cpu, &dataset);
    let expected_bytes = on_cpu.moved_bytes();
    for seed in seeds {
        machine.reset(seed);
        let mut trainer = trainer::<N>(Device::Cuda, seed % 2 == 0);
        let what = format!("seed {seed}, {}", trainer.device_line());
        assert_close(&losses(&mut trainer, &dataset), &expected, &what);
        assert_eq!(trainer.moved_bytes(), expected_bytes, "{what}");
        let launches = machine.n_calls("cuGraphLaunch");
        // All steps but the first, which no graph can be made of.
        assert_eq!(launches, if seed % 2 == 0 { N_STEPS as u64 - 1 } else { 0 }, "{what}");
    }
}

#[test]
fn digits_on_eight_gpus() {
    on_virtual_gpus("digits_on_eight_gpus", &[], |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..N_SEEDS);
    });
}

#[test]
fn digits_on_one_gpu_that_eight_ranks_share() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("digits_on_one_gpu_that_eight_ranks_share", &settings, |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..N_SEEDS);
    });
}

#[test]
fn digits_on_three_gpus() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus("digits_on_three_gpus", &settings, |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..10);
    });
}

#[test]
fn cnn_digits_on_eight_gpus() {
    on_virtual_gpus("cnn_digits_on_eight_gpus", &[], |machine| {
        trains_as_on_the_cpu::<cnn_digits::Network>(machine, 0..N_SEEDS);
    });
}

#[test]
fn cnn_digits_on_one_gpu() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("cnn_digits_on_one_gpu", &settings, |machine| {
        trains_as_on_the_cpu::<cnn_digits::Network>(machine, 0..4);
    });
}

/// The events are there for a reason: without one of them some order of the streams gives other losses.
#[test]
fn a_wait_that_is_left_out_shows() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("a_wait_that_is_left_out_shows", &settings, |machine| {
        let dataset = dataset();
        let expected = losses(&mut trainer::<digits::Network>(Device::Cpu, true), &dataset);
        let train = |seed, skipped| {
            machine.reset(seed);
            let mut trainer = trainer::<digits::Network>(Device::Cuda, false);
            machine.skip_wait(skipped);
            let found = losses(&mut trainer, &dataset);
            machine.skip_wait(0);
            found
        };
        assert_close(&train(0, 0), &expected, "with all waits");
        let n_waits = machine.n_calls("cuStreamWaitEvent");
        assert!(n_waits > 100, "{n_waits} waits");
        let skipped = (1..=n_waits).step_by(7).map(u64::cast_signed);
        let is_wrong = |&it: &i64| (0..3).any(|seed| !is_close(&train(seed, it), &expected));
        let wrong: Vec<i64> = skipped.filter(is_wrong).take(3).collect();
        println!("of {n_waits} waits, these are among those that show when left out: {wrong:?}");
        assert_eq!(wrong.len(), 3);
    });
}

/// Why a trainer cannot be made, or cannot go on.
fn fault(test: &str, settings: &[(&str, &str)], expected: &[&str]) {
    on_virtual_gpus(test, settings, |_| {
        let config = Config { device: Device::Cuda, ..Config::default() };
        let dataset = dataset();
        let made = Trainer::<digits::Network>::new(config).map(drop);
        let error = match made {
            Err(error) => error,
            Ok(()) => {
                let mut trainer = trainer::<digits::Network>(Device::Cuda, true);
                let mut batches = dataset.batches(32).unwrap();
                let batch = batches.next_whole().unwrap();
                let mut step = || trainer.step(&views(&batch)).err();
                let first = (0..10).find_map(|_| step()).expect("a step fails");
                let later = step().expect("so does each later one").to_string();
                assert!(later.contains(&first.to_string()), "{later}");
                first
            }
        };
        println!("{error}");
        let text = error.to_string();
        assert!(expected.iter().all(|it| text.contains(it)), "expected {expected:?} in: {text}");
    });
}

#[test]
fn no_device() {
    fault("no_device", &[("SOYBEAN_FAKE_DEVICES", "0")], &["expected a GPU"]);
}

#[test]
fn a_driver_that_is_too_old() {
    let settings = [("SOYBEAN_FAKE_DRIVER", "11040")];
    fault(
        "a_driver_that_is_too_old",
        &settings,
        &["expected a driver for CUDA 12.0", "found", "11.4"],
    );
}

#[test]
fn too_little_memory() {
    let settings = [("SOYBEAN_FAKE_MEMORY", "100000")];
    fault("too_little_memory", &settings, &["rank 0: expected", "bytes on GPU 0", "free"]);
}

#[test]
fn a_kernel_that_fails() {
    let settings = [("SOYBEAN_FAKE_FAIL_LAUNCH", "30")];
    fault("a_kernel_that_fails", &settings, &["CUDA_ERROR_LAUNCH_FAILED"]);
}

#[test]
fn gpus_that_cannot_reach_each_other() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3"), ("SOYBEAN_FAKE_NO_PEER", "1")];
    fault("gpus_that_cannot_reach_each_other", &settings, &["can reach the memory of"]);
}

#[test]
fn communication_that_breaks() {
    let settings = [("SOYBEAN_FAKE_NCCL_ERROR", "1")];
    fault("communication_that_breaks", &settings, &["NCCL"]);
}
