//! Several trainers in one process, which share GPUs.

use std::{env, process::Command, thread};

use soybean::{Device, runtime::Trainer};
use soybean_fake_cuda::virtual_gpus::{on_virtual_gpus, put_on_virtual_gpus};

use super::{cnn_digits, losses, trainer};

/// Trainers that each thread starts and ends, one after another.
const N_TRAINERS: usize = 8;

#[test]
fn trainers_in_several_threads_do_not_disturb_each_other() {
    // Captures last long enough to meet what other threads do.
    let settings = [("SOYBEAN_FAKE_DEVICES", "2"), ("SOYBEAN_FAKE_CAPTURE_DELAY", "20")];
    let name = "cuda::trainers::trainers_in_several_threads_do_not_disturb_each_other";
    on_virtual_gpus(name, &settings, |machine| {
        let start = || trainer::<cnn_digits::Network>(Device::Cuda, true);
        let expected = losses(&mut start());
        let train = || {
            for number in 0..N_TRAINERS {
                let mut trainer: Trainer = start();
                assert_eq!(losses(&mut trainer), expected, "trainer {number}");
            }
        };
        thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(train)));
        });
        assert_eq!(machine.n_complaints(), 0);
    });
}

/// Modules of tests that take the device that there is.
const MODULES: [&str; 3] = ["generated::", "operators::", "strategies::stopped::buffers"];

#[test]
fn tests_of_any_device_pass_on_a_gpu_that_they_share() {
    let mut command = Command::new(env::current_exe().unwrap());
    if let Err(why) = put_on_virtual_gpus(&mut command, &[]) {
        println!("skipped: {why}");
        return;
    }
    let settings = [("SOYBEAN_FAKE_DEVICES", "1"), ("SOYBEAN_FAKE_CAPTURE_DELAY", "5")];
    command.args(MODULES).args(["--skip", "cuda::", "--test-threads=8"]).envs(settings);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test generated::auto_8 ... ok"), "{text}");
}
