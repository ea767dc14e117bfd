//! The writing of one checkpoint, in a thread of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender},
};

use super::{
    Progress, folder, naming,
    run_file::{FileSum, RunFile},
    shards::{Shard, shards},
};
use crate::{
    Array, Error, Trainer,
    state::Stretch,
    tensor_file::{Writer, fault, refused},
};

/// What is to be written, except the elements, which come one tensor after the other.
pub(super) struct Job {
    folder: PathBuf,
    keep: usize,
    path: PathBuf,
    shards: Vec<Shard>,
    /// Names and texts.
    indices: Vec<(String, String)>,
    run: RunFile,
}

/// How the writer gets the elements.
pub(super) struct Tensors {
    /// One tensor after the other, in the order of the state.
    pub(super) tensors: Receiver<Array>,
    /// Where the memory of those goes that are written.
    pub(super) used: Sender<Vec<f32>>,
}

impl Job {
    /// A checkpoint of the trainer as it is.
    pub(super) fn new(
        folder: &Path,
        keep: usize,
        shard_bytes: u64,
        trainer: &Trainer,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let (tables, counters) = (trainer.tables(), trainer.counters());
        let (mut all, mut indices) = (Vec::new(), Vec::new());
        let parts = [
            (naming::MODEL, Stretch::parameters(tables)),
            (naming::OPTIMIZER, Stretch::states(tables)),
        ];
        for (stem, stretch) in parts {
            let tensors =
                stretch.tensors(tables).map(|it| (it.name.to_owned(), it.tile.shape.to_vec()));
            let (shards, index) = shards(stem, tensors.collect(), shard_bytes)?;
            all.extend(shards);
            indices.extend(index.map(|it| (naming::index(stem), it)));
        }
        Ok(Self {
            folder: folder.to_owned(),
            keep,
            path: naming::path(folder, counters.n_steps),
            shards: all,
            indices,
            run: RunFile::new(&tables.name, counters, progress),
        })
    }

    /// The folder that the checkpoint gets.
    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Writes the checkpoint, and removes older ones that are not to be kept. After an error nothing of it is left.
    pub(super) fn run(self, tensors: &Tensors) -> Result<PathBuf, Error> {
        let Self { folder, keep, path, shards, indices, run } = self;
        let temporary = folder::temporary(&path);
        let mut is_made = false;
        let n_steps = run.counters.n_steps;
        let ready = folder::make(&folder).and_then(|()| folder::settle(&folder));
        let written = ready.and_then(|()| {
            fs::create_dir(&temporary)
                .map_err(|error| refused("make the folder", &temporary, &error))?;
            is_made = true;
            write(&temporary, &shards, &indices, run, tensors)?;
            folder::put_in_place(&temporary, &path)
        });
        if let Err(error) = written {
            let name = path.file_name().unwrap_or_default().display();
            let removed =
                if is_made && temporary.exists() { folder::remove(&temporary) } else { Ok(()) };
            let left = removed.err().map(|why| format!(" ({why})")).unwrap_or_default();
            return Err(fault(format!(
                "checkpoint {name} is not saved: {error}; the earlier checkpoints are intact{left}"
            )));
        }
        folder::prune(&folder, keep, n_steps).map_err(|error| {
            let path = path.display();
            fault(format!("checkpoint {path} is saved, but an older one is not removed: {error}"))
        })?;
        Ok(path)
    }
}

/// Fills a folder and brings it to the disk.
fn write(
    folder: &Path,
    shards: &[Shard],
    indices: &[(String, String)],
    mut run: RunFile,
    Tensors { tensors, used }: &Tensors,
) -> Result<(), Error> {
    for shard in shards {
        let mut writer = Writer::create(&folder.join(&shard.name))?;
        writer.write(&shard.header, "the header")?;
        for (name, n_elements) in &shard.tensors {
            // The sender stops where the trainer fails, and tells of that itself.
            let array = tensors.recv().ok().filter(|it| it.data.len() == *n_elements);
            let array = array.ok_or_else(|| {
                fault(format!("`{name}`: expected {n_elements} elements, found none"))
            })?;
            writer.write_elements(&array.data, name)?;
            let _nobody_needs_it = used.send(array.data);
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
