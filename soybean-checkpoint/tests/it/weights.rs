//! Loading weights by name.

use std::path::Path;

use soybean_checkpoint::{
    Checkpoint, Checkpoints, ErrorKind, Progress,
    weights::{Mapping, load, save},
};

use crate::memory_state::{MemoryState, folder, tensor};

#[test]
fn weights_are_loaded_under_other_names_and_transposed() {
    let path = folder("mapped").join("weights.safetensors");
    save(&path, &[tensor("layer.weight", &[3, 2], 0), tensor("layer.n", &[1], 9)]).unwrap();
    let mapping: Mapping =
        "layer.weight = w transposed; missing b; unused layer.n".parse().unwrap();
    let mut state = MemoryState::linear(100);
    let loaded = load(&mut state, &path, &mapping).unwrap();
    assert_eq!((loaded.n_tensors, &loaded.missing[..]), (1, &["b".to_owned()][..]));
    assert_eq!(loaded.unused, ["layer.n"]);
    let mut expected = MemoryState::linear(100);
    expected.parameters[0].1.data = vec![0.0, 2.0, 4.0, 1.0, 3.0, 5.0];
    assert_eq!(state, expected);
}

#[test]
fn names_that_are_missing_or_unused_are_reported_with_suggestions() {
    let path = folder("unmapped").join("weights.safetensors");
    save(&path, &[tensor("w", &[2, 3], 0), tensor("bb", &[3], 0)]).unwrap();
    let mut state = MemoryState::linear(100);
    let error = load(&mut state, &path, &Mapping::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameters);
    let message = "missing `b` (is it their `bb`?); unused `bb` (is it our `b`?)";
    assert!(error.to_string().ends_with(message), "{error}");
    assert_eq!(state, MemoryState::linear(100));
}

/// Saves a state whose elements begin with its step.
fn save_step(checkpoints: &mut Checkpoints, n_steps: u16) {
    let mut state = MemoryState::linear(n_steps);
    state.counters.n_steps = n_steps.into();
    checkpoints.save(&mut state, &Progress::default()).unwrap();
}

/// Returns the first weight that is loaded, or the error.
fn first_weight(path: &Path) -> Result<f32, String> {
    let mut state = MemoryState::linear(100);
    load(&mut state, path, &Mapping::new()).map_err(|it| it.to_string())?;
    let progress = Checkpoint::progress_beside(path).unwrap();
    assert!(progress.is_some());
    Ok(state.parameters[0].1.data[0])
}

// Guards: the folders of a run mean the checkpoint that can be meant, and an error names them where
// there are several.
#[test]
fn folders_of_a_run_mean_one_checkpoint() {
    let run = folder("run");
    let (best, all) = (run.join("best"), run.join("checkpoints"));
    let (mut checkpoints, mut best_one) = (Checkpoints::new(&all, 3), Checkpoints::new(&best, 1));
    save_step(&mut checkpoints, 1);
    assert_eq!((first_weight(&run), first_weight(&all)), (Ok(1.0), Ok(1.0)));
    save_step(&mut best_one, 1);
    assert_eq!(Checkpoint::open(&run).unwrap().counters().n_steps, 1);
    save_step(&mut checkpoints, 2);
    let one = all.join("step-0000000002");
    assert_eq!((first_weight(&run), first_weight(&best)), (Ok(1.0), Ok(1.0)));
    assert_eq!(first_weight(&one), Ok(2.0));
    assert_eq!(Checkpoint::open(&best).unwrap().path(), best.join("step-0000000001"));
    let several = |it: &Path| {
        let (found, newest) = (it.display(), one.display());
        format!("{found}: expected one checkpoint, found 2; the newest is {newest}")
    };
    assert_eq!(first_weight(&all), Err(several(&all)));
    assert_eq!(Checkpoint::open(&run).unwrap_err().to_string(), several(&run));
}
