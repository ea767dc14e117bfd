//! Checkpoints: the state of a run on disk, from which another run goes on, on any number of devices.
//!
//! A checkpoint is a folder `step-0000000123` with the parameters and buffers (`model.safetensors`), what the optimiser keeps (`optimizer.safetensors`), and everything
//! else in `run.json`, with the length and the CRC-32 of each file. It appears under its name when all of it is on the disk, or not at all.
//!
//! ```no_run
//! use soybean_runtime::{Trainer, checkpoint::{Checkpoints, Progress}};
//!
//! # fn run(mut trainer: Trainer) -> Result<(), soybean_runtime::Error> {
//! let mut checkpoints = Checkpoints::new("out/checkpoints", 3);
//! let progress = Progress { epoch: 2, batch: 17, seed: 7, ..Progress::default() };
//! checkpoints.save(&mut trainer, &progress)?;
//!
//! let latest = checkpoints.latest()?;
//! for (path, why) in &latest.refused {
//!     println!("{} is refused: {why}", path.display());
//! }
//! if let Some(checkpoint) = latest.checkpoint {
//!     let progress = trainer.restore(&checkpoint)?;
//!     println!("going on with batch {} of epoch {}", progress.batch, progress.epoch);
//! }
//! # Ok(())
//! # }
//! ```

mod fit;
mod folder;
mod job;
mod naming;
mod open;
mod restore;
mod run_file;
mod shards;

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{Builder, JoinHandle},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Trainer, abort::said_by, processes::Writing, tensor_file::fault};
pub(crate) use folder::sync;
#[doc(hidden)]
pub use folder::sync_folder;
use job::{Job, Tensors};
pub use open::Checkpoint;

/// Files are split above this length, unless [`Checkpoints::with_shard_bytes`] says otherwise.
const SHARD_BYTES: u64 = 4 << 30;

/// How far a run has come in its data, and what it keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The epoch in which it goes on, from 0.
    pub epoch: u64,
    /// The batch of that epoch with which it goes on, from 0.
    pub batch: u64,
    /// The seed of the run: of the order of the data, and of [`crate::Config::seed`], on which dropout depends.
    pub seed: u64,
    /// The run's own values, such as its best metric. JSON has no numbers that are infinite or none.
    pub extra: Map<String, Value>,
}

/// The checkpoints of a run, in one folder.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    shard_bytes: u64,
    background: Option<Saving>,
}

/// What [`Checkpoints::latest`] finds.
#[derive(Debug)]
pub struct Latest {
    /// The newest checkpoint that is whole.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones, and what is wrong with them.
    pub refused: Vec<(PathBuf, Error)>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, such as `out/checkpoints`, which is made when it is needed. The newest `keep` whole ones stay, and that which was just written with all that are newer; all, if
    /// `keep` is 0.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self { folder: folder.into(), keep, shard_bytes: SHARD_BYTES, background: None }
    }

    /// Splits files of tensors above this length; a tensor that is longer has a file of its own. 4 GiB, unless this is called.
    #[must_use]
    pub const fn with_shard_bytes(mut self, shard_bytes: u64) -> Self {
        self.shard_bytes = shard_bytes;
        self
    }

    /// The folder of all checkpoints.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the checkpoint after this many steps, whether it is there or not.
    #[must_use]
    pub fn path_after(&self, n_steps: u64) -> PathBuf {
        naming::path(&self.folder, n_steps)
    }

    /// The steps and folders of all checkpoints, complete or not, in the order of their steps.
    ///
    /// # Errors
    /// If the folder is there but cannot be listed.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        folder::checkpoints(&self.folder)
    }

    /// Gives back its name to a checkpoint that was giving way to another of the same step when its run was killed, unless the other is there, and removes what else killed runs left. Of several processes the first does
    /// so, and all wait for it. Saving begins with the same.
    ///
    /// # Errors
    /// If a folder cannot be renamed or removed, or with the error of an earlier save in the background.
    pub fn settle(&mut self, trainer: &mut Trainer) -> Result<(), Error> {
        let settled = self.wait().and_then(|_| match trainer.process().is_first() {
            true => folder::settle(&self.folder),
            false => Ok(()),
        });
        trainer.together(settled)
    }

    /// Writes a checkpoint and gives its folder. Of several processes the first writes; all of them call this, and go on when it is written. Tensors are written while the next are fetched, so that few of
    /// them are in memory.
    ///
    /// # Errors
    /// If a rank fails, or a file cannot be written; then what was written is removed, and all earlier checkpoints are as they were. Also with the error of an
    /// earlier save in the background, in which case nothing was written now. Other processes fail with that of the first, and none of their trainers can be used.
    pub fn save(&mut self, trainer: &mut Trainer, progress: &Progress) -> Result<PathBuf, Error> {
        let saved = match trainer.process().is_first() {
            true => self.save_here(trainer, progress),
            false => self.saved_elsewhere(trainer),
        };
        trainer.together(saved)
    }

    fn save_here(&mut self, trainer: &mut Trainer, progress: &Progress) -> Result<PathBuf, Error> {
        self.wait()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // Memory that was written comes back for later tensors, since fresh memory costs as much as the copying. Only the newest is kept: as each tensor makes its memory longer, all
        // would come to be as long as the longest.
        let (used, spare) = mpsc::channel();
        let saving = self.start(trainer, progress, Tensors { tensors: receiver, used })?;
        let mut spare = || spare.try_iter().last();
        // Where the writer is gone, it says why.
        let fetched = trainer.for_each_tensor(&mut spare, &mut |array| sender.send(array).is_ok());
        drop(sender);
        let saved = saving.join();
        fetched?;
        saved
    }

    /// Copies the state, and writes it while training goes on. [`Self::wait`] gives the outcome; so does the next call that saves, if it was an error. Of several processes all call this, and only
    /// the first has something to wait for.
    ///
    /// # Errors
    /// If a rank fails, or with the error of an earlier save in the background. Other processes fail with that of the first, and none of their trainers can be used.
    pub fn save_in_background(
        &mut self,
        trainer: &mut Trainer,
        progress: &Progress,
    ) -> Result<(), Error> {
        let begun = match trainer.process().is_first() {
            true => self.begin_here(trainer, progress),
            false => self.saved_elsewhere(trainer).map(|_| ()),
        };
        trainer.together(begun)
    }

    fn begin_here(&mut self, trainer: &mut Trainer, progress: &Progress) -> Result<(), Error> {
        self.wait()?;
        let (sender, receiver) = mpsc::channel();
        // Only then it is written, so that the writer does not take time from the copying.
        trainer.for_each_tensor(&mut || None, &mut |array| sender.send(array).is_ok())?;
        drop(sender);
        let tensors = Tensors { tensors: receiver, used: mpsc::channel().0 };
        self.background = Some(self.start(trainer, progress, tensors)?);
        Ok(())
    }

    /// Waits for the save in the background, if there is one, and gives its folder.
    ///
    /// # Errors
    /// If it failed.
    pub fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        self.background.take().map(Saving::join).transpose()
    }

    /// Whether a save is going on in the background.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.background.as_ref().is_some_and(|it| !it.thread.is_finished())
    }

    /// The newest checkpoint that is whole, and newer ones that are not. Every byte of it is read. A save in the background is not waited for.
    ///
    /// # Errors
    /// If the folder is there but cannot be listed.
    pub fn latest(&self) -> Result<Latest, Error> {
        let mut refused = Vec::new();
        for (_, path) in self.list()?.into_iter().rev() {
            match Checkpoint::open(&path) {
                Ok(checkpoint) => return Ok(Latest { checkpoint: Some(checkpoint), refused }),
                Err(why) => refused.push((path, why)),
            }
        }
        Ok(Latest { checkpoint: None, refused })
    }

    /// Takes part in fetching the state, which the first process writes; the folder that the checkpoint gets.
    fn saved_elsewhere(&self, trainer: &mut Trainer) -> Result<PathBuf, Error> {
        let path = self.path_after(trainer.counters().n_steps);
        trainer.hand_out_tensors()?;
        Ok(path)
    }

    fn start(
        &self,
        trainer: &Trainer,
        progress: &Progress,
        tensors: Tensors,
    ) -> Result<Saving, Error> {
        let job = Job::new(&self.folder, self.keep, self.shard_bytes, trainer, progress)?;
        let path = job.path();
        let writing = Writing::begin();
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(move || {
            let _writing = writing;
            job.run(&tensors)
        });
        let thread = thread.map_err(|error| fault(format!("a thread that writes: {error}")))?;
        Ok(Saving { path, thread })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        #[expect(clippy::print_stderr, reason = "nobody is left who could be given the error")]
        if let Err(error) = self.wait() {
            eprintln!("{error}");
        }
    }
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Saving {
    path: PathBuf,
    thread: JoinHandle<Result<PathBuf, Error>>,
}

impl Saving {
    fn join(self) -> Result<PathBuf, Error> {
        self.thread.join().unwrap_or_else(|panic| {
            let (path, said) = (self.path.display(), said_by(&*panic));
            Err(fault(format!("{path}: the thread that writes it panicked: {said}")))
        })
    }
}
