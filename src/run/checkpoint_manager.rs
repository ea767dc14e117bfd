//! The checkpoints of a run: saving, and keeping the best one.
//!
//! `best/` is beside `checkpoints/` and has the files of the best checkpoint as hard links, or as
//! copies where the file system has no links.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use soybean_runtime::{
    Error, ErrorKind, Process, Trainer,
    checkpoint::{Checkpoints, Progress, sync_folder},
};

use super::TrainConfig;

/// The checkpoints of one run.
pub(crate) struct CheckpointManager {
    checkpoints: Checkpoints,
    best: PathBuf,
    is_async: bool,
    /// This process; the first one writes.
    process: Process,
    /// The checkpoint that is being written.
    saving: Option<(PathBuf, CheckpointKind)>,
    newest: Option<PathBuf>,
    best_one: Option<PathBuf>,
}

/// The kind of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointKind {
    Best,
    Regular,
}

impl CheckpointManager {
    pub(crate) fn new(out: &Path, config: &TrainConfig, process: Process) -> Self {
        let best = out.join(BEST);
        Self {
            checkpoints: Checkpoints::new(folder(out), config.keep),
            best_one: list(&best).ok().and_then(|mut it| it.pop()).map(|it| it.1),
            best,
            is_async: config.async_checkpoint,
            process,
            saving: None,
            newest: None,
        }
    }

    /// Sets the checkpoint from which the run resumes. The best one is also kept as the best, since
    /// the earlier run may have ended before it did so.
    pub(crate) fn set_resumed(&mut self, path: &Path, kind: CheckpointKind) -> Result<(), Error> {
        self.finish(path.to_owned(), kind).map(|_| ())
    }

    /// Saves a checkpoint, or starts to save it in the background. Returns a checkpoint that is
    /// complete.
    pub(crate) fn save(
        &mut self,
        trainer: &mut Trainer,
        progress: &Progress,
        kind: CheckpointKind,
    ) -> Result<Option<PathBuf>, Error> {
        let earlier = self.wait()?;
        if self.is_async {
            self.checkpoints.save_in_background(trainer, progress)?;
            let path = self.checkpoints.path_after(trainer.counters().n_steps);
            self.saving = Some((path, kind));
            return Ok(earlier);
        }
        let path = self.checkpoints.save(trainer, progress)?;
        self.finish(path, kind).map(Some)
    }

    /// Returns the checkpoint that was being written, once it is complete. Only the first process
    /// knows; the others learn of it at the next save.
    pub(crate) fn poll(&mut self) -> Result<Option<PathBuf>, Error> {
        match self.process.is_first() && !self.checkpoints.is_saving() {
            true => self.wait(),
            false => Ok(None),
        }
    }

    /// Waits for the checkpoint that is being written, and returns it.
    pub(crate) fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        let Some((path, kind)) = self.saving.take() else { return Ok(None) };
        self.checkpoints.wait()?;
        self.finish(path, kind).map(Some)
    }

    /// Returns the newest checkpoint of a failed run, as far as this process knows.
    pub(crate) fn last_saved(&mut self) -> Option<&Path> {
        if self.process.is_first() {
            // The error that ended the run matters more than one of the checkpoint.
            let _ = self.wait();
        }
        self.newest()
    }

    fn finish(&mut self, path: PathBuf, kind: CheckpointKind) -> Result<PathBuf, Error> {
        if kind == CheckpointKind::Best {
            self.keep_best(&path)?;
        }
        self.newest = Some(path.clone());
        Ok(path)
    }

    /// Returns the newest checkpoint of this run.
    pub(crate) fn newest(&self) -> Option<&Path> {
        self.newest.as_deref()
    }

    /// Returns the best checkpoint.
    pub(crate) fn best(&self) -> Option<&Path> {
        self.best_one.as_deref()
    }

    fn keep_best(&mut self, path: &Path) -> Result<(), Error> {
        let kept = self.best.join(path.file_name().unwrap_or_default());
        if self.process.is_first() {
            self.link_best(path, &kept)?;
        }
        self.best_one = Some(kept);
        Ok(())
    }

    fn link_best(&self, path: &Path, kept: &Path) -> Result<(), Error> {
        link(path, kept).map_err(|error| {
            checkpoint_error(format!(
                "cannot keep {} in {}: {error}",
                path.display(),
                self.best.display()
            ))
        })?;
        for (_, other) in list(&self.best)?.iter().filter(|it| it.1 != *kept) {
            fs::remove_dir_all(other).map_err(|error| {
                checkpoint_error(format!(
                    "cannot remove {}, which is no longer best: {error}",
                    other.display()
                ))
            })?;
        }
        Ok(())
    }
}

/// Creates the folder `kept` with the files of a checkpoint.
fn link(path: &Path, kept: &Path) -> io::Result<()> {
    if path == kept {
        return Ok(());
    }
    let folder = kept.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = folder.join(".tmp-best");
    if temporary.exists() {
        fs::remove_dir_all(&temporary)?;
    }
    fs::create_dir(&temporary)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let to = temporary.join(entry.file_name());
        if fs::hard_link(entry.path(), &to).is_err() {
            fs::copy(entry.path(), &to)?;
            File::open(&to)?.sync_all()?;
        }
    }
    if kept.exists() {
        fs::remove_dir_all(kept)?;
    }
    fs::rename(&temporary, kept)?;
    sync_folder(folder)
}

pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const BEST: &str = "best";

/// Returns the folder of a run's checkpoints.
pub(crate) fn folder(out: &Path) -> PathBuf {
    out.join(CHECKPOINTS)
}

/// Lists the checkpoints of a folder in the order of their steps.
pub(crate) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    Checkpoints::new(folder, 0).list()
}

fn checkpoint_error(message: String) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::output::tests::folder as temporary;

    pub(crate) fn checkpoint(folder: &Path, step: u64) -> PathBuf {
        let path = folder.join(format!("step-{step:010}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("run.json"), step.to_string()).unwrap();
        path
    }

    pub(crate) fn steps(folder: &Path) -> Vec<u64> {
        list(folder).unwrap().into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn the_best_checkpoint_outlives_the_one_it_was() {
        let out = temporary("best");
        let start = || CheckpointManager::new(&out, &TrainConfig::default(), Process::ONLY);
        let mut manager = start();
        for step in [5, 90] {
            let path = checkpoint(&folder(&out), step);
            manager.keep_best(&path).unwrap();
            let kept = manager.best().unwrap().to_owned();
            manager.keep_best(&kept).unwrap();
            assert_eq!(manager.best(), Some(&*kept), "twice is once");
            fs::remove_dir_all(path).unwrap();
            assert_eq!(fs::read_to_string(kept.join("run.json")).unwrap(), step.to_string());
            assert_eq!(steps(&out.join(BEST)), [step]);
        }
        assert!(start().best().unwrap().ends_with("step-0000000090"));
    }

    /// All processes know what the first one wrote.
    #[test]
    fn processes_that_write_nothing_know_what_is_written() {
        let out = temporary("elsewhere");
        let other = Process { number: 1, count: 2 };
        let mut manager = CheckpointManager::new(&out, &TrainConfig::default(), other);
        let path = folder(&out).join("step-0000000004");
        manager.saving = Some((path.clone(), CheckpointKind::Best));
        assert_eq!(
            manager.poll().unwrap(),
            None,
            "only the first process knows whether it is there"
        );
        assert_eq!(manager.wait().unwrap(), Some(path.clone()));
        assert_eq!(manager.newest(), Some(&*path));
        assert_eq!(manager.best(), Some(&*out.join("best/step-0000000004")));
        assert!(!out.join(BEST).exists());
    }
}
