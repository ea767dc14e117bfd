//! Loading weights by name.

use soybean_checkpoint::{
    ErrorKind,
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
