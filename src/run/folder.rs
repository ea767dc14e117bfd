//! The folder of a run: one run at a time writes into it, and what earlier runs left is moved aside, never removed.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use soybean_runtime::Error;

use super::{
    files::{self, fault},
    keeper::{self, BEST, CHECKPOINTS},
};

/// Makes the folder where it is not there, and keeps other runs out of it as long as the result lives.
pub(crate) fn lock(out: &Path) -> Result<File, Error> {
    let open = || {
        fs::create_dir_all(out)?;
        File::create(out.join(".lock"))
    };
    let file = open().map_err(|it| fault(out, &it))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(fault(out, &"another run is writing there")),
        // Not every file system has locks. They help against a mistake; without one a run is as good.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Whether a checkpoint is one of the run in this folder, as those that were moved aside are not.
pub(crate) fn has(out: &Path, checkpoint: &Path) -> bool {
    let parent = checkpoint.canonicalize().ok().and_then(|it| Some(it.parent()?.to_owned()));
    let is_parent = |name| out.join(name).canonicalize().is_ok_and(|it| Some(it) == parent);
    [CHECKPOINTS, BEST].into_iter().any(is_parent)
}

/// Moves an earlier run aside, with all that it left. Gives the folder in which it is then, as it was here.
pub(crate) fn move_run(out: &Path) -> Result<Option<PathBuf>, Error> {
    let is_of_run = |name: &str| [CHECKPOINTS, BEST].contains(&name) || files::is_of_run(name);
    let go = || {
        let names = fs::read_dir(out)?.map(|it| Ok(it?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.retain(|it| it.to_str().is_some_and(is_of_run));
        if names.is_empty() {
            return Ok(None);
        }
        let aside = new_place(out)?;
        names.iter().try_for_each(|name| fs::rename(out.join(name), aside.join(name)))?;
        Ok(Some(aside))
    };
    go().map_err(|it| cannot(out, &it))
}

/// Moves the checkpoints after more than `n_steps` steps aside, from which a run does not go on, with a copy of what else tells of them. Gives the folder in which they are then, which
/// is one of a run.
pub(crate) fn move_later(out: &Path, n_steps: u64) -> Result<Option<PathBuf>, Error> {
    let mut later = Vec::new();
    for name in [CHECKPOINTS, BEST] {
        let found = keeper::list(&out.join(name))?.into_iter().filter(|it| it.0 > n_steps);
        later.extend(found.map(|(_, path)| (name, path)));
    }
    let go = || {
        if later.is_empty() {
            return Ok(None);
        }
        let aside = new_place(out)?;
        for (name, path) in &later {
            let to = aside.join(name);
            fs::create_dir_all(&to)?;
            fs::rename(path, to.join(path.file_name().unwrap_or_default()))?;
        }
        for name in [files::CHOICES, files::LINES].into_iter().filter(|it| out.join(it).exists()) {
            fs::copy(out.join(name), aside.join(name))?;
        }
        Ok(Some(aside))
    };
    go().map_err(|it| cannot(out, &it))
}

/// `old`, or `old.2`, or ..: the first that is not there.
fn new_place(out: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let name = if number == 1 { "old".to_owned() } else { format!("old.{number}") };
        let place = out.join(name);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| place),
        }
    }
}

fn cannot(out: &Path, found: &io::Error) -> Error {
    fault(out, &format!("what an earlier run left cannot be moved aside: {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{
        files::tests::folder as temporary,
        keeper::tests::{checkpoint, steps},
    };

    /// The folder after a run with checkpoints at steps 3, 9 and 10, of which the last is the best.
    fn after_a_run(name: &str) -> PathBuf {
        let out = temporary(name);
        for step in [3, 9, 10] {
            checkpoint(&out.join(CHECKPOINTS), step);
        }
        checkpoint(&out.join(BEST), 10);
        for name in ["config.toml", "metrics.jsonl", "events.out.tfevents.1.2.soybean", "mine.txt"]
        {
            fs::write(out.join(name), name).unwrap();
        }
        out
    }

    #[test]
    fn runs_are_moved_aside_and_none_is_removed() {
        let out = after_a_run("aside");
        let aside = move_run(&out).unwrap().unwrap();
        assert_eq!(aside, out.join("old"));
        assert_eq!(
            (steps(&aside.join(CHECKPOINTS)), steps(&aside.join(BEST))),
            (vec![3, 9, 10], vec![10])
        );
        for name in ["config.toml", "metrics.jsonl", "events.out.tfevents.1.2.soybean"] {
            assert_eq!(fs::read_to_string(aside.join(name)).unwrap(), name);
            assert!(!out.join(name).exists());
        }
        assert_eq!(move_run(&out).unwrap(), None, "the user's own file stays");
        checkpoint(&out.join(CHECKPOINTS), 4);
        // A checkpoint that was moved aside is not one of this folder's run.
        assert!(has(&out, &out.join("checkpoints/step-0000000004")));
        assert!(!has(&out, &aside.join("checkpoints/step-0000000003")));
        assert_eq!(move_run(&out).unwrap(), Some(out.join("old.2")));
        assert_eq!(steps(&aside.join(CHECKPOINTS)), [3, 9, 10]);
    }

    #[test]
    fn later_checkpoints_are_moved_aside() {
        let out = after_a_run("later");
        assert_eq!(move_later(&out, 10).unwrap(), None);
        let aside = move_later(&out, 9).unwrap().unwrap();
        assert_eq!((steps(&out.join(CHECKPOINTS)), steps(&out.join(BEST))), (vec![3, 9], vec![]));
        assert_eq!(
            (steps(&aside.join(CHECKPOINTS)), steps(&aside.join(BEST))),
            (vec![10], vec![10])
        );
        for name in ["config.toml", "metrics.jsonl"] {
            assert!(aside.join(name).exists() && out.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn one_run_at_a_time_writes_into_a_folder() {
        let out = temporary("locked").join("run");
        let first = lock(&out).unwrap();
        let error = lock(&out).unwrap_err().to_string();
        assert_eq!(error, format!("cannot write {}: another run is writing there", out.display()));
        drop(first);
        lock(&out).unwrap();
    }
}
