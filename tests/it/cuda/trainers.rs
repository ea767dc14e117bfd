//! Several trainers in one process, which share GPUs.

use std::thread;

use soybean::{Device, runtime::Trainer};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

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
