//! Opening a checkpoint: all of its bytes are read and checked.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use safetensors::Dtype;

use crate::{
    Counters, Error, Progress,
    finite::FiniteCheck,
    locate, naming,
    run_file::{FileSum, RunFile},
    tensor_file::{Entry, Reader, checkpoint_error, n_bytes_of, read_chunks},
};

/// A checkpoint on disk whose lengths and checksums were found to be right.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    run: RunFile,
    /// The files of parameters and buffers.
    pub(crate) model_files: Vec<TensorFile>,
    /// The files of the optimizer's tensors.
    pub(crate) optimizer_files: Vec<TensorFile>,
}

/// A file of tensors that was checked.
#[derive(Clone, Debug)]
pub(crate) struct TensorFile {
    pub(crate) path: PathBuf,
    pub(crate) sum: FileSum,
    pub(crate) entries: Vec<Entry>,
}

impl Checkpoint {
    /// Opens the folder of a checkpoint, or the only checkpoint in a folder such as `best/`, and
    /// reads and checks all of its files.
    ///
    /// # Errors
    /// If the folder contains several checkpoints, if a file is missing or cannot be read, if a
    /// length, a checksum, a header or the step in the folder's name is wrong, or if a number is
    /// not finite.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let path = locate::checkpoint_in(&path)?.unwrap_or(path);
        let run = RunFile::read(&path)?;
        check_name(&path, run.counters.n_steps)?;
        let (model_files, optimizer_files) = (Vec::new(), Vec::new());
        let mut this = Self { path, run, model_files, optimizer_files };
        for sum in &this.run.files {
            let path = path_in(&this.path, sum)?;
            check_length(&path, sum)?;
            let files = match &sum.name {
                name if naming::is_shard(name, naming::MODEL) => &mut this.model_files,
                name if naming::is_shard(name, naming::OPTIMIZER) => &mut this.optimizer_files,
                _ => {
                    sum.check(&path, read_chunks(&path, &mut |_| {})?)?;
                    continue;
                }
            };
            files.push(TensorFile { entries: entries(&path, sum)?, path, sum: sum.clone() });
        }
        check_names(&this.path, &this.model_files)?;
        check_names(&this.path, &this.optimizer_files)?;
        Ok(this)
    }

    /// Returns the progress that a checkpoint stores, given a folder of weights as
    /// [`weights::load`](crate::weights::load) takes it, or a file in it; `None` for weights that
    /// are of no checkpoint. No tensors are read.
    ///
    /// # Errors
    /// If the folder contains several checkpoints, or the file `run.json` of a checkpoint cannot be
    /// read or is damaged.
    pub fn progress_beside(weights: &Path) -> Result<Option<Progress>, Error> {
        let folder = match weights.is_dir() {
            true => locate::weights_in(weights)?,
            false => weights.parent().map(Path::to_owned),
        };
        let folder = folder.filter(|it| it.join(naming::RUN_FILE).is_file());
        folder.map(|it| RunFile::read(&it).map(|run| run.progress)).transpose()
    }

    /// Returns the folder of the checkpoint.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name and the checksum, which depends on all bytes, as text.
    pub(crate) fn identity(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().display();
        format!("{name} with the checksum {}", self.run.checksum())
    }

    /// Returns the name of the model that was trained.
    #[must_use]
    pub fn model_name(&self) -> &str {
        &self.run.model
    }

    /// Returns the files of parameters and buffers, and their tensors.
    pub(crate) fn into_model_files(self) -> impl Iterator<Item = (PathBuf, Vec<Entry>)> {
        self.model_files.into_iter().map(|it| (it.path, it.entries))
    }

    /// Returns the counters of the trainer.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.run.counters
    }

    /// Returns the progress of the run.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.run.progress
    }
}

/// Returns true if all files exist and have their full length. Their contents are not read.
pub(crate) fn is_complete(folder: &Path) -> bool {
    let is_there =
        |sum: &FileSum| path_in(folder, sum).and_then(|path| check_length(&path, sum)).is_ok();
    RunFile::read(folder).is_ok_and(|run| run.files.iter().all(is_there))
}

/// Checks the step in the folder's name, since the newest checkpoint is found by name.
fn check_name(path: &Path, n_steps: u64) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match naming::FolderName::parse(&name).map(|it| it.n_steps) {
        Some(expected) if expected != n_steps => {
            let path = path.display();
            Err(checkpoint_error(format!(
                "{path}: expected a checkpoint after {expected} steps, found one after {n_steps}"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

fn path_in(folder: &Path, sum: &FileSum) -> Result<PathBuf, Error> {
    let name = Path::new(&sum.name);
    if name.file_name() == Some(name.as_os_str()) {
        return Ok(folder.join(name));
    }
    let (folder, name) = (folder.display(), &sum.name);
    Err(checkpoint_error(format!("{folder}: expected files of this folder, found `{name}`")))
}

fn check_length(path: &Path, sum: &FileSum) -> Result<(), Error> {
    let (expected, found) = (sum.bytes, n_bytes_of(path)?);
    if expected == found {
        return Ok(());
    }
    let path = path.display();
    Err(checkpoint_error(format!("{path}: expected {expected} bytes, found {found}")))
}

fn entries(path: &Path, sum: &FileSum) -> Result<Vec<Entry>, Error> {
    let mut reader = Reader::open(path)?;
    let (mut entries, mut checks) = (Vec::new(), Vec::new());
    loop {
        let mut check = FiniteCheck::default();
        let mut add = |bytes: &[u8]| {
            check.add(bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)));
        };
        let Some(entry) = reader.next(&mut add)? else { break };
        entries.push(entry.clone());
        checks.push(check);
    }
    sum.check(path, reader.sum())?;
    let display = path.display();
    if let Some(other) = entries.iter().find(|it| it.dtype != Dtype::F32) {
        let (name, found) = (&other.name, other.dtype);
        let message = format!("{display}: `{name}`: expected elements of type F32, found {found}");
        return Err(checkpoint_error(message));
    }
    for (entry, check) in entries.iter().zip(checks) {
        let checked = check.finish(&sum.name, &entry.name);
        checked.map_err(|error| checkpoint_error(format!("{display}: {error}")))?;
    }
    Ok(entries)
}

fn check_names(path: &Path, files: &[TensorFile]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    match files.iter().flat_map(|it| &it.entries).find(|it| !names.insert(&it.name)) {
        Some(twice) => {
            let (path, name) = (path.display(), &twice.name);
            Err(checkpoint_error(format!("{path}: `{name}`: expected once, found in two files")))
        }
        None => Ok(()),
    }
}
