//! Tests of the examples under many schedules.

use soybean::{Device, Network};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::{N_STEPS, assert_close, cnn_digits, digits, is_close, losses, trainer};

const N_SEEDS: u64 = 100;

/// Trains under many schedules, with and without graphs.
pub(crate) fn trains_as_on_the_cpu<N: Network>(
    machine: &Machine,
    seeds: impl Iterator<Item = u64>,
) {
    let mut on_cpu = trainer::<N>(Device::Cpu, true);
    let expected = losses(&mut on_cpu);
    let expected_bytes = on_cpu.moved_bytes();
    for seed in seeds {
        machine.reset(seed);
        let mut trainer = trainer::<N>(Device::Cuda, seed % 2 == 0);
        let what = format!("seed {seed}, {}", trainer.device_line());
        assert_close(&losses(&mut trainer), &expected, &what);
        assert_eq!(trainer.moved_bytes(), expected_bytes, "{what}");
        let launches = machine.n_calls("cuGraphLaunch");
        // All steps but the first use graphs. With NCCL none does.
        let has_graphs = seed % 2 == 0 && !trainer.device_line().contains("NCCL");
        assert_eq!(launches, if has_graphs { N_STEPS as u64 - 1 } else { 0 }, "{what}");
        drop(trainer);
        assert_eq!(machine.n_complaints(), 0, "{what}");
    }
}

#[test]
fn digits_on_eight_gpus() {
    on_virtual_gpus("cuda::schedules::digits_on_eight_gpus", &[], |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..N_SEEDS);
    });
}

#[test]
fn digits_on_one_gpu_that_eight_ranks_share() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus(
        "cuda::schedules::digits_on_one_gpu_that_eight_ranks_share",
        &settings,
        |machine| {
            trains_as_on_the_cpu::<digits::Network>(machine, 0..N_SEEDS);
        },
    );
}

#[test]
fn digits_on_three_gpus() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus("cuda::schedules::digits_on_three_gpus", &settings, |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..10);
    });
}

/// Threads that wait for room in their launch queues do not wait for each other in a circle.
#[test]
fn digits_with_short_launch_queues() {
    let settings = [("SOYBEAN_FAKE_QUEUE", "8")];
    on_virtual_gpus("cuda::schedules::digits_with_short_launch_queues", &settings, |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..N_SEEDS);
    });
}

#[test]
fn digits_on_three_gpus_with_short_launch_queues() {
    let test = "cuda::schedules::digits_on_three_gpus_with_short_launch_queues";
    let settings = [("SOYBEAN_FAKE_QUEUE", "8"), ("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus(test, &settings, |machine| {
        trains_as_on_the_cpu::<digits::Network>(machine, 0..10);
    });
}

#[test]
fn cnn_digits_on_eight_gpus() {
    on_virtual_gpus("cuda::schedules::cnn_digits_on_eight_gpus", &[], |machine| {
        trains_as_on_the_cpu::<cnn_digits::Network>(machine, 0..N_SEEDS / 4);
    });
}

#[test]
fn cnn_digits_on_one_gpu() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("cuda::schedules::cnn_digits_on_one_gpu", &settings, |machine| {
        trains_as_on_the_cpu::<cnn_digits::Network>(machine, 0..4);
    });
}

/// Every event is necessary: without one of them, some schedule gives other losses.
#[test]
fn a_skipped_wait_changes_losses() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("cuda::schedules::a_skipped_wait_changes_losses", &settings, |machine| {
        let expected = losses(&mut trainer::<digits::Network>(Device::Cpu, true));
        let train = |seed, skipped| {
            machine.reset(seed);
            let mut trainer = trainer::<digits::Network>(Device::Cuda, false);
            machine.skip_wait(skipped);
            let found = losses(&mut trainer);
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
