//! The checkpoints of a run: saving, and keeping the best one.
//!
//! `best/` is beside `checkpoints/` and has the files of the best checkpoint as hard links, or as
//! copies where the file system has no links.

use std::path::{Path, PathBuf};

use soybean_runtime::{
    Error, Process, Trainer,
    checkpoint::{BEST, CHECKPOINTS, Checkpoints, Latest, Progress},
};

use super::TrainConfig;

/// The checkpoints of one run.
pub(crate) struct CheckpointManager {
    checkpoints: Checkpoints,
    best: Checkpoints,
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
        let best = Checkpoints::new(best(out), 1);
        Self {
            checkpoints: Checkpoints::new(folder(out), config.keep),
            best_one: best.list().ok().and_then(|mut it| it.pop()).map(|it| it.1),
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
        self.newest = Some(path.clone());
        if kind == CheckpointKind::Best {
            self.keep_best(&path)?;
        }
        Ok(path)
    }

    /// Returns new warnings: old checkpoints that could not be removed.
    pub(crate) fn take_warnings(&mut self) -> Vec<Error> {
        [self.checkpoints.take_warnings(), self.best.take_warnings()].concat()
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
        let kept = match self.process.is_first() {
            true => self.best.keep_only(path)?,
            false => self.best.folder().join(path.file_name().unwrap_or_default()),
        };
        self.best_one = Some(kept);
        Ok(())
    }
}

/// Returns the folder of a run's checkpoints.
pub(crate) fn folder(out: &Path) -> PathBuf {
    out.join(CHECKPOINTS)
}

/// Returns the folder of a run's best checkpoint.
pub(crate) fn best(out: &Path) -> PathBuf {
    out.join(BEST)
}

/// Lists the checkpoints of a folder in the order of their steps.
pub(crate) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    Checkpoints::new(folder, 0).list()
}

/// Finds the newest intact checkpoint of a run, which may be the best one.
pub(crate) fn latest(out: &Path) -> Result<Latest, Error> {
    Checkpoints::new(folder(out), 0).latest_with(&best(out))
}

/// Returns the note on a checkpoint that could not be removed.
pub(crate) fn leftover(warning: &Error) -> String {
    format!("a checkpoint that is not needed stays, and the next save tries again: {warning}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

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
