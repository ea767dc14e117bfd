//! Tests of checkpoints between GPUs and the CPU.

use std::{fs, path::Path};

use soybean::{
    Array, Device,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    runtime::Trainer,
};

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

use super::{assert_close, cnn_digits, losses, trainer};

/// Returns parameters, buffers and the optimizer's tensors.
fn state(trainer: &mut Trainer) -> Vec<(String, Array)> {
    let mut state = trainer.parameters().unwrap();
    state.extend(trainer.optimizer_state().unwrap());
    state
}

/// Trains and saves on one device, and continues on the other.
fn move_on(from: Device, to: Device) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("from_{from}_to_{to}"));
    let _not_there = fs::remove_dir_all(&folder);
    let mut first = trainer::<cnn_digits::Network>(from, true);
    losses(&mut first);
    let mut checkpoints = Checkpoints::new(&folder, 1);
    checkpoints.save_in_background(&mut first, &Progress::default()).unwrap();
    let path = checkpoints.wait().unwrap().unwrap();
    let mut second = trainer::<cnn_digits::Network>(to, true);
    second.restore(&Checkpoint::open(path).unwrap()).unwrap();
    assert_eq!(second.n_steps(), first.n_steps());
    assert_eq!(state(&mut second), state(&mut first));
    let what = format!("from {} to {}", first.device_line(), second.device_line());
    assert_close(&losses(&mut second), &losses(&mut first), &what);
}

#[test]
fn checkpoints_resume_on_another_device() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus(
        "cuda::checkpoints::checkpoints_resume_on_another_device",
        &settings,
        |machine| {
            move_on(Device::Cuda, Device::Cpu);
            move_on(Device::Cpu, Device::Cuda);
            move_on(Device::Cuda, Device::Cuda);
            assert_eq!(machine.n_complaints(), 0);
        },
    );
}
