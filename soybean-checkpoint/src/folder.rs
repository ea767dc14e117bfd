//! The folder that contains all checkpoints of a run.
//!
//! A checkpoint is written to a temporary folder, which is renamed when everything in it is on
//! disk. Before a checkpoint is removed, its folder is renamed to a temporary name. So a folder
//! with the name of a checkpoint is never partly written or partly removed.
//!
//! A folder that cannot be removed, because it is immutable or busy, only gives a warning. Each
//! later save tries again.

use std::{
    fs::{self, DirEntry, File, FileType},
    io,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    checkpoint::is_complete,
    naming::{self, Content, FolderName},
    tensor_file::{checkpoint_error, io_error, read_error},
};

/// Lists the steps and folders of the checkpoints, complete or not, in the order of steps.
///
/// A checkpoint that was being replaced counts if its replacement does not exist.
pub(crate) fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let names = folder_names(folder)?;
    let is_checkpoint = |name: &FolderName| match name.content {
        Content::Checkpoint => true,
        Content::Replaced => !is_placed(&names, name.n_steps),
        Content::Temporary => false,
    };
    let found = names.iter().filter(|it| is_checkpoint(it));
    Ok(found.map(|it| (it.n_steps, folder.join(it.text()))).collect())
}

/// Creates the folder and its parents if they do not exist, and waits until they are on disk.
///
/// # Errors
/// Errors of the operating system.
pub fn create(folder: &Path) -> Result<(), Error> {
    // The last ancestor of a relative path is empty.
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.is_dir();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(|error| io_error("make the folder", folder, &error))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync)
}

/// Cleans up after runs that were killed while they saved. Returns a warning for each folder that
/// stays.
///
/// A checkpoint that was being replaced gets its name back if its replacement does not exist. All
/// other temporary folders are removed.
pub(crate) fn settle(folder: &Path) -> Result<Vec<Error>, Error> {
    let names = folder_names(folder)?;
    let is_newest = |name: &FolderName| {
        let alike =
            names.iter().filter(|it| (it.n_steps, it.content) == (name.n_steps, name.content));
        alike.max() == Some(name)
    };
    let settle = |name: &FolderName| {
        let path = folder.join(name.text());
        match name.content {
            Content::Checkpoint => Ok(()),
            Content::Replaced if is_newest(name) && !is_placed(&names, name.n_steps) => {
                rename(&path, &naming::path(folder, name.n_steps))
            }
            Content::Replaced | Content::Temporary => remove(&path),
        }
    };
    Ok(names.iter().filter_map(|it| settle(it).err()).collect())
}

/// Renames a folder that is complete on disk to its final name. Returns the folder of an earlier
/// checkpoint of the same step, which is to be removed.
///
/// That checkpoint is renamed first. After an error the names are as before.
pub(crate) fn put_in_place(temporary: &Path, path: &Path) -> Result<Option<PathBuf>, Error> {
    let replaced = match path.symlink_metadata().is_ok() {
        true => Some(beside(path, Content::Replaced)?),
        false => None,
    };
    if let Some(replaced) = &replaced {
        rename(path, replaced)?;
    }
    let placed = rename(temporary, path).and_then(|()| {
        let synced = path.parent().map_or(Ok(()), sync);
        synced.or_else(|error| rename(path, temporary).and(Err(error)))
    });
    match (placed, replaced) {
        (Ok(()), replaced) => Ok(replaced),
        (Err(error), Some(replaced)) => rename(&replaced, path).and(Err(error)),
        (Err(error), None) => Err(error),
    }
}

/// Removes old checkpoints. Returns a warning for each one that stays.
///
/// A checkpoint is old if it is older than the one just written and not among the newest `keep`
/// complete ones. If `keep` is 0, none is old.
pub(crate) fn prune(folder: &Path, keep: usize, written: u64) -> Vec<Error> {
    if keep == 0 {
        return Vec::new();
    }
    let found = match checkpoints(folder) {
        Ok(found) => found,
        Err(error) => return vec![error],
    };
    let (mut n_kept, mut warnings) = (0, Vec::new());
    for (n_steps, path) in found.into_iter().rev() {
        if n_steps >= written || n_kept < keep {
            n_kept += usize::from(is_complete(&path));
            continue;
        }
        warnings.extend(remove_checkpoint(&path).err());
    }
    warnings
}

/// Removes a checkpoint, which is never partly there under its own name.
pub(crate) fn remove_checkpoint(path: &Path) -> Result<(), Error> {
    let temporary = temporary(path)?;
    rename(path, &temporary)?;
    remove(&temporary)
}

/// Returns a new name for the folder in which a checkpoint is written before it gets its final
/// name.
pub(crate) fn temporary(path: &Path) -> Result<PathBuf, Error> {
    beside(path, Content::Temporary)
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

/// Returns a path beside a checkpoint that nothing has. Its number is the next after those of
/// entries that could not be removed.
fn beside(path: &Path, content: Content) -> Result<PathBuf, Error> {
    let text = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(FolderName { n_steps, .. }) = FolderName::parse(&text) else {
        let path = path.display();
        return Err(checkpoint_error(format!("{path}: expected the name of a checkpoint")));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let entries = entries(folder)?;
    let alike = entries.iter().filter_map(|it| FolderName::parse(&it.0));
    let last = alike.filter(|it| (it.n_steps, it.content) == (n_steps, content)).max();
    let number = last.map_or(1, |it| it.number.saturating_add(1));
    Ok(folder.join(FolderName { n_steps, content, number }.text()))
}

fn is_placed(names: &[FolderName], n_steps: u64) -> bool {
    names.iter().any(|it| (it.n_steps, it.content) == (n_steps, Content::Checkpoint))
}

/// Lists the folders of checkpoints, in the order of steps. Files of such names are not ours.
fn folder_names(folder: &Path) -> Result<Vec<FolderName>, Error> {
    let entries = entries(folder)?.into_iter().filter(|it| !it.1.is_file());
    let mut names: Vec<_> = entries.filter_map(|it| FolderName::parse(&it.0)).collect();
    names.sort_unstable();
    Ok(names)
}

fn entries(folder: &Path) -> Result<Vec<(String, FileType)>, Error> {
    let wrong = |error: io::Error| read_error("list the folder", folder, &error);
    // The parent of a bare file name is empty.
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error)),
    };
    let entry = |entry: io::Result<DirEntry>| {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Ok((name, entry.file_type().map_err(wrong)?))
    };
    entries.map(entry).collect()
}
