//! Writing one checkpoint, in a thread of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender},
};

use crate::{
    Array, Error, Progress, TrainingState,
    finite::FiniteCheck,
    folder, naming,
    run_file::{FileSum, RunFile},
    shards::{Shard, shards},
    tensor_file::{Writer, checkpoint_error, io_error},
};

/// The contents of a checkpoint that is to be written, without the elements of its tensors.
pub(crate) struct CheckpointWriter {
    folder: PathBuf,
    keep: usize,
    path: PathBuf,
    shards: Vec<Shard>,
    /// Names and texts.
    indices: Vec<(String, String)>,
    run: RunFile,
}

/// The channels that bring the elements of the tensors to the writer.
pub(crate) struct TensorQueue {
    /// Whole tensors, in the order of the state.
    pub(crate) tensors: Receiver<Array>,
    /// Takes back the memory of written tensors.
    pub(crate) used: Sender<Vec<f32>>,
}

/// A checkpoint that was written.
pub(crate) struct Written {
    /// The folder of the checkpoint.
    pub(crate) path: PathBuf,
    /// Errors of folders that could not be removed.
    pub(crate) warnings: Vec<Error>,
}

impl CheckpointWriter {
    /// Describes a checkpoint of the current state.
    pub(crate) fn new(
        folder: &Path,
        keep: usize,
        shard_bytes: u64,
        state: &impl TrainingState,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let (spec, counters) = (state.spec(), state.counters());
        let run = RunFile::new(&spec.model, counters, progress);
        let (mut all, mut indices) = (Vec::new(), Vec::new());
        for (stem, tensors) in
            [(naming::MODEL, spec.parameters), (naming::OPTIMIZER, spec.optimizer)]
        {
            let (shards, index) = shards(stem, tensors, shard_bytes)?;
            all.extend(shards);
            indices.extend(index.map(|it| (naming::index(stem), it)));
        }
        let path = naming::path(folder, counters.n_steps);
        Ok(Self { folder: folder.to_owned(), keep, path, shards: all, indices, run })
    }

    /// Returns the folder of the checkpoint.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Writes the checkpoint, and removes older ones. After an error, none of its files are left.
    pub(crate) fn run(self, tensors: &TensorQueue) -> Result<Written, Error> {
        let Self { folder, keep, path, shards, indices, run } = self;
        let n_steps = run.counters.n_steps;
        let ready = folder::create(&folder).and_then(|()| folder::settle(&folder));
        let written = ready.and_then(|warnings| {
            let fill = |it: &Path| write(it, &shards, &indices, run, tensors);
            Ok((warnings, place(&path, fill)?))
        });
        let (mut warnings, replaced) = written.map_err(|error| {
            let name = path.file_name().unwrap_or_default().display();
            checkpoint_error(format!(
                "checkpoint {name} is not saved: {error}; the earlier checkpoints are intact"
            ))
        })?;
        warnings.extend(replaced.and_then(|it| folder::remove(&it).err()));
        warnings.extend(folder::prune(&folder, keep, n_steps));
        Ok(Written { path, warnings })
    }
}

/// Writes the folder of a checkpoint under a temporary name, and renames it. Returns the folder of
/// an earlier checkpoint of the same step, which is to be removed. After an error, nothing is left.
pub(crate) fn place(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<Option<PathBuf>, Error> {
    let temporary = folder::temporary(path)?;
    fs::create_dir(&temporary).map_err(|error| io_error("make the folder", &temporary, &error))?;
    let placed = fill(&temporary).and_then(|()| folder::put_in_place(&temporary, path));
    placed.map_err(|error| match folder::remove(&temporary) {
        Ok(()) => error,
        Err(why) => checkpoint_error(format!("{error} ({why})")),
    })
}

/// Writes all files of a checkpoint to a folder, and waits until they are on disk.
fn write(
    folder: &Path,
    shards: &[Shard],
    indices: &[(String, String)],
    mut run: RunFile,
    TensorQueue { tensors, used }: &TensorQueue,
) -> Result<(), Error> {
    for shard in shards {
        let mut writer = Writer::create(&folder.join(&shard.name))?;
        writer.write(&shard.header, "the header")?;
        for tensor in &shard.tensors {
            let (name, n_elements) = (&tensor.name, tensor.n_elements());
            // The sender stops if a device fails, and reports that error itself.
            let array = tensors.recv().ok().filter(|it| it.data.len() == n_elements);
            let array = array.ok_or_else(|| {
                checkpoint_error(format!("`{name}`: expected {n_elements} elements, found none"))
            })?;
            let mut check = FiniteCheck::default();
            check.add(array.data.iter().copied());
            check.finish(&shard.name, name)?;
            writer.write_elements(&array.data, name)?;
            let _receiver_may_be_gone = used.send(array.data);
        }
        run.files.push(FileSum::new(&shard.name, writer.finish()?));
    }
    for (name, text) in indices {
        let mut writer = Writer::create(&folder.join(name))?;
        writer.write(text.as_bytes(), "the index of tensors")?;
        run.files.push(FileSum::new(name, writer.finish()?));
    }
    let mut writer = Writer::create(&folder.join(naming::RUN_FILE))?;
    writer.write(run.to_text()?.as_bytes(), "the run's counters")?;
    writer.finish()?;
    folder::sync(folder)
}
