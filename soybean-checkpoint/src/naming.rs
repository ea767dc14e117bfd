//! The names of folders and files.

use std::path::{Path, PathBuf};

/// The file that lists all other files.
pub(crate) const RUN_FILE: &str = "run.json";

/// The file of parameters and buffers, without its extension.
pub(crate) const MODEL: &str = "model";

/// The file of the optimizer's tensors, without its extension.
pub(crate) const OPTIMIZER: &str = "optimizer";

/// The prefix of folders that are being written or removed, which are not checkpoints.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// The prefix of checkpoints that are being replaced by a newer one of the same step.
pub(crate) const REPLACED: &str = ".old-";

/// Returns the name of the checkpoint after this many steps. Names sort in the order of steps.
pub(crate) fn folder(n_steps: u64) -> String {
    format!("step-{n_steps:010}")
}

/// Returns the path of the checkpoint after this many steps.
pub(crate) fn path(checkpoints: &Path, n_steps: u64) -> PathBuf {
    checkpoints.join(folder(n_steps))
}

/// Returns the number of steps in the name of a checkpoint, or `None` for other names.
pub(crate) fn steps_of(folder: &str) -> Option<u64> {
    let n_steps = folder.strip_prefix("step-")?.parse().ok()?;
    (self::folder(n_steps) == folder).then_some(n_steps)
}

/// Returns the file name of a shard, as Hugging Face names them. Shards are numbered from 1; a
/// single shard has no number.
pub(crate) fn shard(stem: &str, number: usize, count: usize) -> String {
    match count {
        1 => format!("{stem}.safetensors"),
        _ => format!("{stem}-{number:05}-of-{count:05}.safetensors"),
    }
}

/// Returns the name of the index, the file that maps tensors to shards.
pub(crate) fn index(stem: &str) -> String {
    format!("{stem}.safetensors.index.json")
}

/// Returns true if this is the name of a shard with this stem.
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
