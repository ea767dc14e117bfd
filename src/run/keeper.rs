//! The checkpoints of a run: when they are on the disk, which is the best, and what becomes of those of earlier runs.
//!
//! The best one is in `best/`, beside `checkpoints/`, in a folder of its own whose files are the same as those of the checkpoint: links to them, or copies where there are none.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use soybean_runtime::{
    Error, ErrorKind, Process, Trainer,
    checkpoint::{Checkpoints, Progress},
};

use super::TrainConfig;

/// The checkpoints of a run that is under way.
pub(crate) struct Keeper {
    checkpoints: Checkpoints,
    best: PathBuf,
    is_async: bool,
    /// Which process this is; the first one writes.
    process: Process,
    /// Whether one is being written, and whether it is the best.
    under_way: Option<Rank>,
    newest: Option<PathBuf>,
    best_one: Option<PathBuf>,
}

/// What a checkpoint is among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
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
    pub(crate) fn resumed(&mut self, path: &Path, rank: Rank) -> Result<(), Error> {
        self.newest = Some(path.to_owned());
        if rank == Rank::Best { self.keep_best(path) } else { Ok(()) }
    }

    /// Writes a checkpoint, or begins to; gives that which is on the disk.
    pub(crate) fn save(
        &mut self,
        trainer: &mut Trainer,
        progress: &Progress,
        rank: Rank,
    ) -> Result<Option<PathBuf>, Error> {
        let earlier = self.wait()?;
        if self.is_async {
            self.checkpoints.save_in_background(trainer, progress)?;
            self.under_way = Some(rank);
            return Ok(earlier);
        }
        let path = self.checkpoints.save(trainer, progress)?;
        self.settle(path, rank).map(Some)
    }

    /// The checkpoint that was being written, if it is on the disk since.
    pub(crate) fn poll(&mut self) -> Result<Option<PathBuf>, Error> {
        match self.under_way {
            Some(_) if !self.checkpoints.is_saving() => self.wait(),
            Some(_) | None => Ok(None),
        }
    }

    /// Waits for the checkpoint that is being written.
    pub(crate) fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        let Some(rank) = self.under_way.take() else { return Ok(None) };
        match self.checkpoints.wait()? {
            Some(path) => self.settle(path, rank).map(Some),
            None => Ok(None),
        }
    }

    fn settle(&mut self, path: PathBuf, rank: Rank) -> Result<PathBuf, Error> {
        if rank == Rank::Best {
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
        if !self.process.is_first() {
            return Ok(());
        }
        let kept = link(path, &self.best).map_err(|error| {
            fault(format!("cannot keep {} in {}: {error}", path.display(), self.best.display()))
        })?;
        for (_, other) in list(&self.best)?.iter().filter(|it| it.1 != kept) {
            fs::remove_dir_all(other).map_err(|error| {
                fault(format!(
                    "cannot remove {}, which is no longer best: {error}",
                    other.display()
                ))
            })?;
        }
        self.best_one = Some(kept);
        Ok(())
    }
}

/// Makes `folder/name` a second folder of a checkpoint's files.
fn link(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default();
    let kept = folder.join(name);
    if path == kept {
        return Ok(kept);
    }
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
        fs::remove_dir_all(&kept)?;
    }
    fs::rename(&temporary, &kept)?;
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(kept)
}

const CHECKPOINTS: &str = "checkpoints";
const BEST: &str = "best";

/// The folder of a run's checkpoints.
pub(crate) fn folder(out: &Path) -> PathBuf {
    out.join(CHECKPOINTS)
}

/// Moves checkpoints aside that this run does not go on from: those behind this step, or all. They take the place of what was moved there before. Gives the folders to which something was
/// moved.
pub(crate) fn move_aside(out: &Path, behind: Option<u64>) -> Result<Vec<PathBuf>, Error> {
    let mut moved = Vec::new();
    for folder in [CHECKPOINTS, BEST] {
        let (from, to) = (out.join(folder), out.join(format!("{folder}.old")));
        let mut later = list(&from)?;
        later.retain(|(step, _)| behind.is_none_or(|behind| *step > behind));
        if later.is_empty() {
            continue;
        }
        let go = || {
            if to.exists() {
                fs::remove_dir_all(&to)?;
            }
            fs::create_dir(&to)?;
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_owned();
            later.iter().try_for_each(|(_, path)| fs::rename(path, to.join(name(path))))
        };
        go().map_err(|error: io::Error| {
            fault(format!("cannot move the checkpoints in {} aside: {error}", from.display()))
        })?;
        moved.push(to);
    }
    Ok(moved)
}

/// The checkpoints in a folder, in the order of their steps.
fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    Checkpoints::new(folder, 0).list()
}

fn fault(message: String) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::run::files::tests::folder as temporary;

    fn checkpoint(folder: &Path, step: u64) -> PathBuf {
        let path = folder.join(format!("step-{step:010}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("run.json"), step.to_string()).unwrap();
        path
    }

    fn steps(folder: &Path) -> Vec<u64> {
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

    #[test]
    fn checkpoints_of_other_runs_are_moved_aside() {
        let out = temporary("aside");
        let checkpoints = folder(&out);
        assert_eq!(move_aside(&out, None).unwrap(), [] as [PathBuf; 0]);
        for step in [3, 9, 10] {
            checkpoint(&checkpoints, step);
        }
        let aside = out.join("checkpoints.old");
        assert_eq!(move_aside(&out, Some(9)).unwrap(), slice::from_ref(&aside));
        assert_eq!(steps(&checkpoints), [3, 9]);
        assert_eq!(steps(&aside), [10]);
        move_aside(&out, None).unwrap();
        assert_eq!(steps(&aside), [3, 9]);
        assert_eq!(steps(&checkpoints), [0; 0]);
    }
}
