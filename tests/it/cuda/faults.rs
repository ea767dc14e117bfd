//! Tests of failures: each gives one permanent error, and none hangs.

use std::time::Duration;

use soybean::{Config, Device, Network, Trainer, runtime};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::{digits, loader, trainer};

/// More steps than an error needs to appear.
const N_STEPS: usize = 10;

/// Trains until a step fails. Returns the error, which all later steps must repeat.
fn first_failure(trainer: &mut runtime::Trainer) -> String {
    let batch = loader().next().unwrap().unwrap();
    let mut step = || trainer.step(&batch.views()).err();
    let first = (0..N_STEPS).find_map(|_| step()).expect("a step fails").to_string();
    let later = step().expect("so does each later one").to_string();
    assert!(later.contains(&first), "{later}");
    first
}

/// Checks the error of a trainer that cannot start or cannot continue.
fn check_error(test: &str, settings: &[(&str, &str)], expected: &[&str]) {
    on_virtual_gpus(test, settings, |_| {
        let config = Config { device: Device::Cuda, ..Config::default() };
        let error = match Trainer::<digits::Network>::new(config).map(drop) {
            Err(error) => error.to_string(),
            Ok(()) => first_failure(&mut trainer::<digits::Network>(Device::Cuda, true)),
        };
        println!("{error}");
        assert!(expected.iter().all(|it| error.contains(it)), "expected {expected:?} in: {error}");
    });
}

/// Lets each launch fail in turn, with different schedules, with and without graphs.
fn fails_once(machine: &Machine) {
    for seed in 0..40 {
        machine.reset(seed);
        let n_before = machine.n_complaints();
        let mut trainer = trainer::<digits::Network>(Device::Cuda, seed % 2 == 0);
        machine.fail_launch(1 + 23 * seed.cast_signed());
        let error = first_failure(&mut trainer);
        assert!(error.contains("CUDA_ERROR_LAUNCH_FAILED"), "seed {seed}: {error}");
        drop(trainer);
        // Only the failure itself is reported, and no consequential error.
        assert_eq!(machine.n_complaints(), n_before + 1, "seed {seed}: {error}");
        machine.fail_launch(0);
    }
}

/// Lets a launch hang. The step ends with an error that says what is unfinished.
fn hangs(machine: &Machine, uses_graphs: bool, expected: &str) {
    for (seed, launch) in [(0, 40), (1, 400)] {
        machine.reset(seed);
        let n_before = machine.n_complaints();
        let step_timeout = Some(Duration::from_secs(3));
        let config =
            Config { device: Device::Cuda, uses_graphs, step_timeout, ..Config::default() };
        let mut trainer = runtime::Trainer::new(digits::Network::model(), config).unwrap();
        // Later steps are graphs, if there are any.
        let batch = loader().next().unwrap().unwrap();
        for _ in 0..2 {
            trainer.step(&batch.views()).unwrap();
        }
        machine.hang_launch(launch);
        let error = first_failure(&mut trainer);
        println!("{error}");
        assert!(error.starts_with("a step: expected its end within 3s, found unfinished: "));
        assert!(error.contains(expected), "{error}");
        drop(trainer);
        assert_eq!(machine.n_complaints(), n_before, "seed {seed}: {error}");
        machine.hang_launch(0);
    }
}

#[test]
fn a_kernel_that_hangs_among_collectives() {
    on_virtual_gpus("cuda::faults::a_kernel_that_hangs_among_collectives", &[], |machine| {
        hangs(machine, true, "ranks ");
    });
}

#[test]
fn a_kernel_that_hangs_on_the_only_gpu() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("cuda::faults::a_kernel_that_hangs_on_the_only_gpu", &settings, |machine| {
        hangs(machine, false, ": one of ");
        hangs(machine, true, "the graph of the step");
    });
}

// Launch queues are full long before a step is queued. The thread that watches does not launch, so
// a hang ends with an error even then.

#[test]
fn a_kernel_that_hangs_among_collectives_while_queues_are_full() {
    let test = "cuda::faults::a_kernel_that_hangs_among_collectives_while_queues_are_full";
    let settings = [("SOYBEAN_FAKE_QUEUE", "8")];
    on_virtual_gpus(test, &settings, |machine| hangs(machine, false, "rank"));
}

#[test]
fn a_kernel_that_hangs_among_copies_while_queues_are_full() {
    let test = "cuda::faults::a_kernel_that_hangs_among_copies_while_queues_are_full";
    let settings = [("SOYBEAN_FAKE_QUEUE", "8"), ("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus(test, &settings, |machine| hangs(machine, false, "rank"));
}

#[test]
fn a_kernel_that_hangs_on_the_only_gpu_while_its_queue_is_full() {
    let test = "cuda::faults::a_kernel_that_hangs_on_the_only_gpu_while_its_queue_is_full";
    let settings = [("SOYBEAN_FAKE_QUEUE", "8"), ("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus(test, &settings, |machine| hangs(machine, false, "rank"));
}

/// The driver answers no question while a launch waits. What is being queued is named then.
#[test]
fn a_kernel_that_hangs_in_a_driver_that_does_not_answer() {
    let test = "cuda::faults::a_kernel_that_hangs_in_a_driver_that_does_not_answer";
    let settings = [("SOYBEAN_FAKE_QUEUE", "8"), ("SOYBEAN_FAKE_QUEUE_LOCKS", "1")];
    on_virtual_gpus(test, &settings, |machine| hangs(machine, false, "the start of "));
}

#[test]
fn no_device() {
    check_error("cuda::faults::no_device", &[("SOYBEAN_FAKE_DEVICES", "0")], &["expected a GPU"]);
}

#[test]
fn a_driver_that_is_too_old() {
    let settings = [("SOYBEAN_FAKE_DRIVER", "11040")];
    check_error(
        "cuda::faults::a_driver_that_is_too_old",
        &settings,
        &["expected a driver for CUDA 12.0", "found", "11.4"],
    );
}

#[test]
fn too_little_memory() {
    let settings = [("SOYBEAN_FAKE_MEMORY", "100000")];
    check_error(
        "cuda::faults::too_little_memory",
        &settings,
        &["rank 0: expected", "bytes on GPU 0", "free"],
    );
}

#[test]
fn a_kernel_that_fails_among_collectives() {
    on_virtual_gpus("cuda::faults::a_kernel_that_fails_among_collectives", &[], fails_once);
}

#[test]
fn a_kernel_that_fails_among_copies() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus("cuda::faults::a_kernel_that_fails_among_copies", &settings, fails_once);
}

#[test]
fn a_kernel_that_fails_on_the_only_gpu() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus("cuda::faults::a_kernel_that_fails_on_the_only_gpu", &settings, fails_once);
}

#[test]
fn gpus_that_cannot_reach_each_other() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3"), ("SOYBEAN_FAKE_NO_PEER", "1")];
    check_error(
        "cuda::faults::gpus_that_cannot_reach_each_other",
        &settings,
        &["access to the memory of"],
    );
}

#[test]
fn communication_fails_at_the_start() {
    let settings = [("SOYBEAN_FAKE_NCCL_ERROR", "1")];
    check_error("cuda::faults::communication_fails_at_the_start", &settings, &["NCCL"]);
}

#[test]
fn communication_fails_during_a_run() {
    on_virtual_gpus("cuda::faults::communication_fails_during_a_run", &[], |machine| {
        for seed in 0..10 {
            machine.reset(seed);
            let mut trainer = trainer::<digits::Network>(Device::Cuda, seed % 2 == 0);
            for batch in loader().take(usize::try_from(seed).unwrap()) {
                trainer.step(&batch.unwrap().views()).unwrap();
            }
            machine.fail_communicators(true);
            let error = first_failure(&mut trainer);
            machine.fail_communicators(false);
            assert!(error.contains("NCCL"), "{error}");
            drop(trainer);
            assert_eq!(machine.n_complaints(), 0, "seed {seed}: {error}");
        }
    });
}
