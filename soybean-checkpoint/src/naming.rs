//! The names of folders and files.

use std::path::{Path, PathBuf};

/// The file that lists all other files.
pub(crate) const RUN_FILE: &str = "run.json";

/// The folder of a run that contains its checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// The folder of a run that contains the best of them.
pub const BEST: &str = "best";

/// The file of parameters and buffers, without its extension.
pub(crate) const MODEL: &str = "model";

/// The file of the optimizer's tensors, without its extension.
pub(crate) const OPTIMIZER: &str = "optimizer";

/// Returns the name of the checkpoint after this many steps. Names sort in the order of steps.
pub(crate) fn folder(n_steps: u64) -> String {
    format!("step-{n_steps:010}")
}

/// Returns the path of the checkpoint after this many steps.
pub(crate) fn path(checkpoints: &Path, n_steps: u64) -> PathBuf {
    checkpoints.join(folder(n_steps))
}

/// The name of a folder of a checkpoint: `step-0000000123` if it is complete, and
/// `.tmp-step-0000000123` or `.old-step-0000000123` if not.
///
/// Where a folder of that name cannot be removed, the next one is `.tmp-step-0000000123.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FolderName {
    /// The steps after which the checkpoint was taken.
    pub(crate) n_steps: u64,
    /// What the folder holds.
    pub(crate) content: Content,
    /// The number among folders that are otherwise called the same, from 1.
    pub(crate) number: u32,
}

/// The content of a folder, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// A checkpoint.
    Checkpoint,
    /// A checkpoint that is being written or removed, which is none.
    Temporary,
    /// A checkpoint that is being replaced by a newer one of the same step.
    Replaced,
}

impl FolderName {
    /// Reads the name of a folder; `None` if it is not one of ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let contents = [Content::Temporary, Content::Replaced, Content::Checkpoint];
        let (content, rest) =
            contents.into_iter().find_map(|it| Some((it, name.strip_prefix(it.prefix())?)))?;
        let (step, number) = match rest.split_once('.') {
            Some((step, number)) => (step, number.parse().ok()?),
            None => (rest, 1),
        };
        let n_steps = step.strip_prefix("step-")?.parse().ok()?;
        let parsed = Self { n_steps, content, number };
        (parsed.text() == name && (number == 1 || content != Content::Checkpoint)).then_some(parsed)
    }

    /// Returns the name as text.
    pub(crate) fn text(&self) -> String {
        let Self { n_steps, content, number } = *self;
        let name = content.prefix().to_owned() + &folder(n_steps);
        if number == 1 { name } else { format!("{name}.{number}") }
    }
}

impl Content {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Checkpoint => "",
            Self::Temporary => ".tmp-",
            Self::Replaced => ".old-",
        }
    }
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
        for (name, content, number) in [
            ("step-0000000123", Content::Checkpoint, 1),
            (".tmp-step-0000000123", Content::Temporary, 1),
            (".old-step-0000000123.12", Content::Replaced, 12),
        ] {
            let parsed = FolderName { n_steps: 123, content, number };
            assert_eq!((FolderName::parse(name), parsed.text().as_str()), (Some(parsed), name));
        }
        for other in ["step-123", "step-00000001x3", "step-0000000123.2", ".old-step-0000000123.1"]
        {
            assert_eq!(FolderName::parse(other), None, "{other}");
        }
        assert_eq!(shard(MODEL, 2, 3), "model-00002-of-00003.safetensors");
        assert!(is_shard("model.safetensors", MODEL) && is_shard(&shard(MODEL, 1, 2), MODEL));
        assert!(!is_shard(&index(MODEL), MODEL) && !is_shard("optimizer.safetensors", MODEL));
    }
}
