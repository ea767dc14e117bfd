//! The checkpoints of a run: when they are on the disk, and which is the best.
//!
//! The best one is in `best/`, beside `checkpoints/`, in a folder of its own whose files are the same as those of the checkpoint: links to them, or copies where there are none.

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

/// The checkpoints of a run that is under way.
pub(crate) struct Keeper {
    checkpoints: Checkpoints,
    best: PathBuf,
    is_async: bool,
    /// Which process this is; the first one writes.
    process: Process,
    /// The one that is being written.
    under_way: Option<(PathBuf, Merit)>,
    newest: Option<PathBuf>,
    best_one: Option<PathBuf>,
}

/// What a checkpoint is among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merit {
    Best,
    Further,
}

impl Keeper {
    pub(crate) fn new(out: &Path, config: &TrainConfig, process: Process) -> Self {
        let best = out.join(BEST);
        Self {
            checkpoints: Checkpoints::new(folder(out), config.keep),
            best_one: list(&best).ok().and_then(|mut it| it.pop()).map(|it| it.1),
            best,
            is_async: config.async_checkpoint,
            process,
            under_way: None,
            newest: None,
        }
    }

    /// Says at which checkpoint the run goes on. If it is the best one, it is kept as that: the run may have ended before.
    pub(crate) fn resumed(&mut self, path: &Path, merit: Merit) -> Result<(), Error> {
        self.settle(path.to_owned(), merit).map(|_| ())
    }

    /// Writes a checkpoint, or begins to; gives that which is on the disk.
    pub(crate) fn save(
        &mut self,
        trainer: &mut Trainer,
        progress: &Progress,
        merit: Merit,
    ) -> Result<Option<PathBuf>, Error> {
        let earlier = self.wait()?;
        if self.is_async {
            self.checkpoints.save_in_background(trainer, progress)?;
            let path = self.checkpoints.path_after(trainer.counters().n_steps);
            self.under_way = Some((path, merit));
            return Ok(earlier);
        }
        let path = self.checkpoints.save(trainer, progress)?;
        self.settle(path, merit).map(Some)
    }

    /// The checkpoint that was being written, if it is on the disk since. Of several processes only the first knows; the others hear of it when all save again.
    pub(crate) fn poll(&mut self) -> Result<Option<PathBuf>, Error> {
        match self.process.is_first() && !self.checkpoints.is_saving() {
            true => self.wait(),
            false => Ok(None),
        }
    }

    /// Waits for the checkpoint that is being written.
    pub(crate) fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        let Some((path, merit)) = self.under_way.take() else { return Ok(None) };
        self.checkpoints.wait()?;
        self.settle(path, merit).map(Some)
    }

    /// The newest checkpoint of a run that has failed, as far as this process can know.
    pub(crate) fn left(&mut self) -> Option<&Path> {
        if self.process.is_first() {
            // What comes of the checkpoint that is being written says less than why the run has failed.
            let _ = self.wait();
        }
        self.newest()
    }

    fn settle(&mut self, path: PathBuf, merit: Merit) -> Result<PathBuf, Error> {
        if merit == Merit::Best {
            self.keep_best(&path)?;
        }
        self.newest = Some(path.clone());
        Ok(path)
    }

    /// The newest checkpoint of this run.
    pub(crate) fn newest(&self) -> Option<&Path> {
        self.newest.as_deref()
    }

    /// The best checkpoint.
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
            fault(format!("cannot keep {} in {}: {error}", path.display(), self.best.display()))
        })?;
        for (_, other) in list(&self.best)?.iter().filter(|it| it.1 != *kept) {
            fs::remove_dir_all(other).map_err(|error| {
                fault(format!(
                    "cannot remove {}, which is no longer best: {error}",
                    other.display()
                ))
            })?;
        }
        Ok(())
    }
}

/// Makes `kept` a second folder of a checkpoint's files.
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

/// The folder of a run's checkpoints.
pub(crate) fn folder(out: &Path) -> PathBuf {
    out.join(CHECKPOINTS)
}

/// The checkpoints in a folder, in the order of their steps.
pub(crate) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    Checkpoints::new(folder, 0).list()
}

fn fault(message: String) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::files::tests::folder as temporary;

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
        let start = || Keeper::new(&out, &TrainConfig::default(), Process::ONLY);
        let mut keeper = start();
        for step in [5, 90] {
            let path = checkpoint(&folder(&out), step);
            keeper.keep_best(&path).unwrap();
            let kept = keeper.best().unwrap().to_owned();
            keeper.keep_best(&kept).unwrap();
            assert_eq!(keeper.best(), Some(&*kept), "twice is once");
            fs::remove_dir_all(path).unwrap();
            assert_eq!(fs::read_to_string(kept.join("run.json")).unwrap(), step.to_string());
            assert_eq!(steps(&out.join(BEST)), [step]);
        }
        assert!(start().best().unwrap().ends_with("step-0000000090"));
    }

    /// What is written in one process is known in all.
    #[test]
    fn processes_that_write_nothing_know_what_is_written() {
        let out = temporary("elsewhere");
        let other = Process { number: 1, count: 2 };
        let mut keeper = Keeper::new(&out, &TrainConfig::default(), other);
        let path = folder(&out).join("step-0000000004");
        keeper.under_way = Some((path.clone(), Merit::Best));
        assert_eq!(
            keeper.poll().unwrap(),
            None,
            "only the first process knows whether it is there"
        );
        assert_eq!(keeper.wait().unwrap(), Some(path.clone()));
        assert_eq!(keeper.newest(), Some(&*path));
        assert_eq!(keeper.best(), Some(&*out.join("best/step-0000000004")));
        assert!(!out.join(BEST).exists());
    }
}
