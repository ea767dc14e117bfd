//! The folder that contains all checkpoints of a run.
//!
//! A checkpoint is written to a temporary folder, which is renamed when everything in it is on
//! disk. Before a checkpoint is removed, its folder is renamed to a temporary name. So a folder
//! with the name of a checkpoint is never partly written or partly removed.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    checkpoint::is_complete,
    naming::{self, REPLACED, TEMPORARY, steps_of},
    tensor_file::io_error,
};

/// Lists the steps and folders of the checkpoints, complete or not, in the order of steps.
///
/// A checkpoint that was being replaced counts if its replacement does not exist.
pub(crate) fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let names = names(folder)?;
    let step = |name: &String| {
        let replaced =
            name.strip_prefix(REPLACED).filter(|it| !names.iter().any(|name| name == it));
        let n_steps = steps_of(replaced.unwrap_or(name))?;
        Some((n_steps, folder.join(name)))
    };
    let mut steps: Vec<(u64, PathBuf)> = names.iter().filter_map(step).collect();
    steps.sort();
    Ok(steps)
}

/// Creates the folder and its parents if they do not exist.
pub(crate) fn create(folder: &Path) -> Result<(), Error> {
    // The last ancestor of a relative path is empty.
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.is_dir();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(|error| io_error("make the folder", folder, &error))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync)
}

/// Cleans up after runs that were killed while they saved.
///
/// A checkpoint that was being replaced gets its name back if its replacement does not exist. All
/// other temporary folders are removed.
pub(crate) fn settle(folder: &Path) -> Result<(), Error> {
    let names = names(folder)?;
    for name in &names {
        let path = folder.join(name);
        let replaced = name.strip_prefix(REPLACED);
        // Folders with these prefixes and other names do not belong to us.
        let step = replaced.or_else(|| name.strip_prefix(TEMPORARY));
        match step.filter(|it| steps_of(it).is_some() && path.is_dir()) {
            Some(step) if replaced.is_some() && !names.iter().any(|it| it == step) => {
                rename(&path, &folder.join(step))?;
            }
            Some(_) => remove(&path)?,
            None => {}
        }
    }
    Ok(())
}

/// Renames a folder that is complete on disk to its final name.
///
/// An earlier checkpoint of the same step is renamed first; [`prune`] removes it. After an error
/// the names are as before.
pub(crate) fn put_in_place(temporary: &Path, path: &Path) -> Result<(), Error> {
    let replaced = beside(path, REPLACED);
    let is_replacement = path.exists();
    if is_replacement {
        rename(path, &replaced)?;
    }
    let placed = rename(temporary, path).and_then(|()| {
        let synced = path.parent().map_or(Ok(()), sync);
        synced.or_else(|error| rename(path, temporary).and(Err(error)))
    });
    if placed.is_err() && is_replacement {
        rename(&replaced, path)?;
    }
    placed
}

/// Removes the checkpoint that was replaced by the one just written, and old checkpoints.
///
/// A checkpoint is old if it is older than the one just written and not among the newest `keep`
/// complete ones. If `keep` is 0, none is old.
pub(crate) fn prune(folder: &Path, keep: usize, written: u64) -> Result<(), Error> {
    let replaced = beside(&naming::path(folder, written), REPLACED);
    if replaced.exists() {
        remove(&replaced)?;
    }
    if keep == 0 {
        return Ok(());
    }
    let mut n_kept = 0;
    for (n_steps, path) in checkpoints(folder)?.into_iter().rev() {
        if n_steps >= written || n_kept < keep {
            n_kept += usize::from(is_complete(&path));
            continue;
        }
        let temporary = temporary(&path);
        rename(&path, &temporary)?;
        remove(&temporary)?;
    }
    Ok(())
}

/// Returns the folder in which a checkpoint is written before it gets its final name.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    beside(path, TEMPORARY)
}

/// Waits until the list of files in a folder is on disk.
///
/// # Errors
/// Errors of the operating system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // The parent of a bare file name is empty.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Only Unix can open a folder as a file.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Does the same as [`sync_folder`], with an error that names the folder.
pub(crate) fn sync(folder: &Path) -> Result<(), Error> {
    sync_folder(folder).map_err(|error| io_error("bring the folder to the disk", folder, &error))
}

/// Removes a folder and its contents.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_dir_all(path).map_err(|error| io_error("remove it", path, &error))
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    let what = || format!("rename it to {}", to.display());
    fs::rename(from, to).map_err(|error| io_error(&what(), from, &error))
}

fn beside(path: &Path, prefix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_prefix(REPLACED).unwrap_or(&name);
    path.with_file_name(format!("{prefix}{name}"))
}

fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let wrong = |error: io::Error| io_error("list the folder", folder, &error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        Ok(entry.map_err(wrong)?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}
