//! The checkpoints of a run: saving, listing and finding the newest.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{Builder, JoinHandle},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use soybean_plan::{ThreadOwner, panic_message};

use crate::{
    Checkpoint, Error, ErrorKind, TrainingState, folder, naming,
    tensor_file::checkpoint_error,
    writer::{CheckpointWriter, TensorQueue, Written},
};

/// Files are split above this length, unless [`Checkpoints::with_shard_bytes`] sets another.
const SHARD_BYTES: u64 = 4 << 30;

/// The progress of a run in its data, and the run's own values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The epoch in which the run continues, from 0.
    pub epoch: u64,
    /// The batch of that epoch with which the run continues, from 0.
    pub batch: u64,
    /// The seed of the run. The order of the data and the noise of dropout depend on it.
    pub seed: u64,
    /// The run's own values, such as its best metric. JSON has no infinite numbers and no NaN.
    pub extra: Map<String, Value>,
}

/// The checkpoints of a run, in one folder.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    shard_bytes: u64,
    background: Option<Saving>,
    /// Warnings that the caller has not taken.
    warnings: Vec<Error>,
    /// The texts of all warnings so far, since each save finds them again.
    known_warnings: BTreeSet<String>,
}

/// The result of [`Checkpoints::latest`].
#[derive(Debug)]
pub struct Latest {
    /// The newest intact checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The newer checkpoints, which are not intact, each with its error.
    pub refused: Vec<(PathBuf, Error)>,
}

impl Checkpoints {
    /// Describes the checkpoints in `folder`, such as `out/checkpoints`. The first save creates
    /// the folder.
    ///
    /// A save removes old checkpoints, except the newest `keep` complete ones. It never removes
    /// the checkpoint that it wrote, nor newer ones. If `keep` is 0, it removes none.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self {
            folder: folder.into(),
            keep,
            shard_bytes: SHARD_BYTES,
            background: None,
            warnings: Vec::new(),
            known_warnings: BTreeSet::new(),
        }
    }

    /// Splits files of tensors above this length; the default is 4 GiB. A longer tensor gets a
    /// file of its own.
    #[must_use]
    pub const fn with_shard_bytes(mut self, shard_bytes: u64) -> Self {
        self.shard_bytes = shard_bytes;
        self
    }

    /// Returns the folder that contains all checkpoints.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the checkpoint after this many steps, even if it does not exist.
    #[must_use]
    pub fn path_after(&self, n_steps: u64) -> PathBuf {
        naming::path(&self.folder, n_steps)
    }

    /// Lists the steps and folders of all checkpoints, complete or not, in the order of steps.
    ///
    /// # Errors
    /// If the folder exists but cannot be listed.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, Error> {
        folder::checkpoints(&self.folder)
    }

    /// Cleans up after runs that were killed while they saved.
    ///
    /// A checkpoint that was being replaced gets its name back if its replacement does not exist.
    /// All other temporary folders are removed. Of several processes, the first does so, and all
    /// wait for it. Each save begins with the same.
    ///
    /// A folder that cannot be renamed or removed gives a [warning](Self::take_warnings).
    ///
    /// # Errors
    /// If the folder exists but cannot be listed, or with the error of an earlier save in the
    /// background.
    pub fn settle(&mut self, state: &mut impl TrainingState) -> Result<(), Error> {
        let settled = self.wait().and_then(|_| match state.is_first_process() {
            true => folder::settle(&self.folder),
            false => Ok(Vec::new()),
        });
        let warnings = state.together(settled)?;
        self.warn(warnings);
        Ok(())
    }

    /// Returns the warnings since the last call, each once: old checkpoints and temporary folders
    /// that could not be removed. Each save tries to remove them again.
    pub fn take_warnings(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.warnings)
    }

    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = Error>) {
        let known = &mut self.known_warnings;
        self.warnings.extend(warnings.into_iter().filter(|it| known.insert(it.to_string())));
    }

    /// Writes a checkpoint and returns its folder.
    ///
    /// Tensors are written while the next ones are fetched, so that few of them are in memory. All
    /// processes call this function, and the first writes. It returns when the checkpoint is
    /// written.
    ///
    /// # Errors
    /// - If a device fails, or a file cannot be written. Then the new files are removed, and all
    ///   earlier checkpoints are unchanged.
    /// - With the error of an earlier save in the background. Then nothing is written.
    ///
    /// If the first process fails, the others return its error, and none of their states can be
    /// used.
    pub fn save(
        &mut self,
        state: &mut impl TrainingState,
        progress: &Progress,
    ) -> Result<PathBuf, Error> {
        let saved = match state.is_first_process() {
            true => self.save_locally(state, progress),
            false => self.hand_out(state),
        };
        state.together(saved)
    }

    fn save_locally(
        &mut self,
        state: &mut impl TrainingState,
        progress: &Progress,
    ) -> Result<PathBuf, Error> {
        self.wait()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // The memory of written tensors is used for later ones, since fresh memory costs as much
        // as copying. Only the newest is kept: otherwise each buffer would in time grow to the
        // length of the longest tensor.
        let (used, spare) = mpsc::channel();
        let saving = self.start(state, progress, TensorQueue { tensors: receiver, used })?;
        let mut spare = || spare.try_iter().last();
        // If the receiver is gone, the writer has failed, and `join` returns its error.
        let fetched = state.for_each_tensor(&mut spare, &mut |array| sender.send(array).is_ok());
        drop(sender);
        let saved = saving.join();
        fetched?;
        saved.map(|it| self.take_path(it))
    }

    /// Copies the state, and writes it while training continues.
    ///
    /// [`Self::wait`] returns the outcome. The next call that saves returns it too if it is an
    /// error. All processes call this function; only the first has something to wait for.
    ///
    /// # Errors
    /// If a device fails, or with the error of an earlier save in the background. If the first
    /// process fails, the others return its error, and none of their states can be used.
    pub fn save_in_background(
        &mut self,
        state: &mut impl TrainingState,
        progress: &Progress,
    ) -> Result<(), Error> {
        let begun = match state.is_first_process() {
            true => self.begin_locally(state, progress),
            false => self.hand_out(state).map(|_| ()),
        };
        state.together(begun)
    }

    fn begin_locally(
        &mut self,
        state: &mut impl TrainingState,
        progress: &Progress,
    ) -> Result<(), Error> {
        self.wait()?;
        let (sender, receiver) = mpsc::channel();
        // The writer starts after the copying, so that it takes no time from it.
        state.for_each_tensor(&mut || None, &mut |array| sender.send(array).is_ok())?;
        drop(sender);
        let tensors = TensorQueue { tensors: receiver, used: mpsc::channel().0 };
        self.background = Some(self.start(state, progress, tensors)?);
        Ok(())
    }

    /// Waits for the save in the background, if there is one, and returns its folder.
    ///
    /// # Errors
    /// If the save failed.
    pub fn wait(&mut self) -> Result<Option<PathBuf>, Error> {
        let saved = self.background.take().map(Saving::join).transpose()?;
        Ok(saved.map(|it| self.take_path(it)))
    }

    fn take_path(&mut self, Written { path, warnings }: Written) -> PathBuf {
        self.warn(warnings);
        path
    }

    /// Returns whether a save runs in the background.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.background.as_ref().is_some_and(|it| !it.thread.is_finished())
    }

    /// Finds the newest intact checkpoint, and newer ones that are not intact.
    ///
    /// It reads every byte of these checkpoints. It does not wait for a save in the background.
    ///
    /// # Errors
    /// If the folder exists but cannot be listed, or if a checkpoint cannot be read, for want of a
    /// permission or because the device fails. Such a checkpoint may be intact.
    pub fn latest(&self) -> Result<Latest, Error> {
        newest_intact(self.list()?)
    }

    /// Does the same as [`Self::latest`] for the checkpoints of this folder and of another one,
    /// such as that of the best. Of two checkpoints after the same step, that of this folder comes
    /// first.
    ///
    /// # Errors
    /// As [`Self::latest`].
    pub fn latest_with(&self, other: &Path) -> Result<Latest, Error> {
        let mut found = folder::checkpoints(other)?;
        found.extend(self.list()?);
        // The sort is stable.
        found.sort_by_key(|it| it.0);
        newest_intact(found)
    }

    /// Sends this process's part of the state to the first process. Returns the folder that the
    /// first process writes.
    fn hand_out(&self, state: &mut impl TrainingState) -> Result<PathBuf, Error> {
        let path = self.path_after(state.counters().n_steps);
        state.hand_out_tensors()?;
        Ok(path)
    }

    fn start(
        &self,
        state: &impl TrainingState,
        progress: &Progress,
        tensors: TensorQueue,
    ) -> Result<Saving, Error> {
        let writer =
            CheckpointWriter::new(&self.folder, self.keep, self.shard_bytes, state, progress)?;
        let path = writer.path();
        let guard = state.write_guard();
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(move || {
            let _guard = guard;
            writer.run(&tensors)
        });
        let thread =
            thread.map_err(|error| checkpoint_error(format!("a thread that writes: {error}")))?;
        Ok(Saving { path, thread, owner: ThreadOwner::this_process() })
    }
}

/// Returns the last checkpoint that is intact.
fn newest_intact(checkpoints: Vec<(u64, PathBuf)>) -> Result<Latest, Error> {
    let mut refused = Vec::new();
    for (_, path) in checkpoints.into_iter().rev() {
        match Checkpoint::open(&path) {
            Ok(checkpoint) => return Ok(Latest { checkpoint: Some(checkpoint), refused }),
            Err(why) if why.kind() == ErrorKind::Unreadable => {
                let path = path.display();
                return Err(Error::new(
                    ErrorKind::Unreadable,
                    format!(
                        "{why}; make it readable, or move {path} away to resume from an earlier checkpoint"
                    ),
                ));
            }
            Err(why) => refused.push((path, why)),
        }
    }
    Ok(Latest { checkpoint: None, refused })
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        #[expect(clippy::print_stderr, reason = "there is no caller to return the error to")]
        if let Err(error) = self.wait() {
            eprintln!("{error}");
        }
    }
}

/// A checkpoint that a thread is writing.
#[derive(Debug)]
struct Saving {
    path: PathBuf,
    thread: JoinHandle<Result<Written, Error>>,
    owner: ThreadOwner,
}

impl Saving {
    fn join(self) -> Result<Written, Error> {
        if let Err(error) = self.owner.check("the checkpoint that is written") {
            std::mem::forget(self.thread);
            return Err(error);
        }
        self.thread.join().unwrap_or_else(|panic| {
            let (path, message) = (self.path.display(), panic_message(&*panic));
            Err(checkpoint_error(format!("{path}: the thread that writes it panicked: {message}")))
        })
    }
}
