//! Saving a state and restoring it.

use std::fs;

use soybean_checkpoint::{Checkpoint, Checkpoints, Counters, ErrorKind, Progress};

use crate::memory_state::{MemoryState, folder, tensor};

#[test]
fn a_saved_state_is_restored() {
    let folder = folder("restored");
    let counters = Counters { n_steps: 7, n_updates: 7, ..Counters::default() };
    let mut saved = MemoryState { counters, ..MemoryState::linear(1) };
    let progress = Progress { epoch: 2, batch: 3, seed: 5, ..Progress::default() };
    // 24 bytes are one tensor `w`, so that there are several files and an index.
    let mut checkpoints = Checkpoints::new(&folder, 1).with_shard_bytes(24);
    let path = checkpoints.save(&mut saved, &progress).unwrap();
    assert_eq!(path, folder.join("step-0000000007"));
    assert!(path.join("model.safetensors.index.json").is_file());

    let latest = checkpoints.latest().unwrap();
    assert!(latest.refused.is_empty());
    let mut restored = MemoryState::linear(100);
    assert_eq!(latest.checkpoint.unwrap().restore(&mut restored).unwrap(), progress);
    assert_eq!(restored, saved);
}

#[test]
fn saves_in_the_background_copy_the_state_before_they_return() {
    let folder = folder("background");
    let mut checkpoints = Checkpoints::new(folder, 1);
    let (before, mut state) = (MemoryState::linear(1), MemoryState::linear(1));
    checkpoints.save_in_background(&mut state, &Progress::default()).unwrap();
    state.parameters[0].1.data.fill(0.0);
    let path = checkpoints.wait().unwrap().unwrap();
    Checkpoint::open(path).unwrap().restore(&mut state).unwrap();
    assert_eq!(state, before);
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let folder = folder("kept");
    let mut checkpoints = Checkpoints::new(folder, 2);
    let mut state = MemoryState::linear(1);
    for n_steps in 1..5 {
        state.counters.n_steps = n_steps;
        checkpoints.save(&mut state, &Progress::default()).unwrap();
    }
    let steps: Vec<u64> = checkpoints.list().unwrap().into_iter().map(|it| it.0).collect();
    assert_eq!(steps, [3, 4]);
}

#[test]
fn other_models_and_optimizers_are_refused_before_anything_is_loaded() {
    let mut checkpoints = Checkpoints::new(folder("refused"), 1);
    let path = checkpoints.save(&mut MemoryState::linear(1), &Progress::default()).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap();
    let check = |mut other: MemoryState, message: &str| {
        let before = other.clone();
        let error = checkpoint.restore(&mut other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checkpoint);
        assert!(error.to_string().ends_with(message), "{error}");
        assert_eq!(other, before);
    };
    let parameters = vec![tensor("w", &[3, 2], 1), tensor("c", &[3], 1)];
    let message = "the model `linear`: without `c`; with the unexpected `b`; \
                   `w`: expected shape [3, 2], found [2, 3]";
    check(MemoryState { parameters, ..MemoryState::linear(1) }, message);
    let message = "expected one that keeps nothing, found one that keeps `momentum`";
    check(MemoryState { optimizer: Vec::new(), ..MemoryState::linear(1) }, message);
}

#[test]
fn a_flipped_bit_is_found_and_the_checkpoint_before_is_the_latest() {
    let mut checkpoints = Checkpoints::new(folder("flipped"), 0);
    let mut state = MemoryState::linear(1);
    let first = checkpoints.save(&mut state, &Progress::default()).unwrap();
    state.counters.n_steps = 1;
    let second = checkpoints.save(&mut state, &Progress::default()).unwrap();
    let file = second.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();

    let latest = checkpoints.latest().unwrap();
    assert_eq!(latest.checkpoint.unwrap().path(), first);
    assert_eq!(latest.refused.len(), 1);
    let (path, error) = &latest.refused[0];
    assert_eq!(*path, second);
    assert!(error.to_string().contains("expected bytes with the CRC-32"), "{error}");
}

#[test]
fn a_state_is_invalid_if_a_file_changes_after_it_was_checked() {
    let mut checkpoints = Checkpoints::new(folder("changed"), 0);
    let path = checkpoints.save(&mut MemoryState::linear(1), &Progress::default()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let file = path.join("optimizer.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let mut state = MemoryState::linear(1);
    assert!(checkpoint.restore(&mut state).is_err());
    assert!(state.is_invalid);
}
