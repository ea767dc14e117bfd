//! The names of folders and files.

use std::path::{Path, PathBuf};

/// The file that tells of all others.
pub(crate) const RUN_FILE: &str = "run.json";

/// The file of parameters and buffers, without its ending.
pub(crate) const MODEL: &str = "model";

/// The file of what the optimiser keeps, without its ending.
pub(crate) const OPTIMIZER: &str = "optimizer";

/// What the names of folders begin with that are not checkpoints: being written, or being removed.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// What the names of folders begin with that are giving way to a newer checkpoint of the same step.
pub(crate) const REPLACED: &str = ".old-";

/// The folder of the checkpoint after this many steps; names are in the order of the steps.
pub(crate) fn folder(n_steps: u64) -> String {
    format!("step-{n_steps:010}")
}

/// Where the checkpoint after this many steps is in the folder of all.
pub(crate) fn path(all: &Path, n_steps: u64) -> PathBuf {
    all.join(folder(n_steps))
}

/// The steps of a checkpoint's folder.
pub(crate) fn steps_of(folder: &str) -> Option<u64> {
    let n_steps = folder.strip_prefix("step-")?.parse().ok()?;
    (self::folder(n_steps) == folder).then_some(n_steps)
}

/// The file of one of several shards, numbered from 1, as Hugging Face names them; of the only one, without a number.
pub(crate) fn shard(stem: &str, number: usize, count: usize) -> String {
    match count {
        1 => format!("{stem}.safetensors"),
        _ => format!("{stem}-{number:05}-of-{count:05}.safetensors"),
    }
}

/// The file that says which shard has which tensor.
pub(crate) fn index(stem: &str) -> String {
    format!("{stem}.safetensors.index.json")
}

/// Whether this is a file of tensors of this stem.
pub(crate) fn is_shard(file: &str, stem: &str) -> bool {
    file.strip_prefix(stem).is_some_and(|it| {
        it.ends_with(".safetensors") && (it.starts_with('-') || it.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_in_the_order_of_steps_and_files_in_that_of_shards() {
        assert_eq!(
            (folder(123).as_str(), steps_of("step-0000000123")),
            ("step-0000000123", Some(123))
        );
        for other in ["step-123", "step-00000001x3", ".tmp-step-0000000123", "best"] {
            assert_eq!(steps_of(other), None, "{other}");
        }
        assert_eq!(shard(MODEL, 2, 3), "model-00002-of-00003.safetensors");
        assert!(is_shard("model.safetensors", MODEL) && is_shard(&shard(MODEL, 1, 2), MODEL));
        assert!(!is_shard(&index(MODEL), MODEL) && !is_shard("optimizer.safetensors", MODEL));
    }
}
