//! The folder of all checkpoints: what is in it, and how one comes and goes as a whole.
//!
//! A checkpoint appears by one renaming, after everything in it is on the disk. It goes by one renaming too, before anything in it is removed.

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

/// The steps and folders of the checkpoints, complete or not, in the order of their steps. One that was giving way to a newer of the same step counts where the newer is not there.
pub(crate) fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let names = names(folder)?;
    let step = |name: &String| {
        let given_way =
            name.strip_prefix(REPLACED).filter(|it| !names.iter().any(|name| name == it));
        let n_steps = steps_of(given_way.unwrap_or(name))?;
        Some((n_steps, folder.join(name)))
    };
    let mut steps: Vec<(u64, PathBuf)> = names.iter().filter_map(step).collect();
    steps.sort();
    Ok(steps)
}

/// Makes the folder where it is not there, and those that it lies in.
pub(crate) fn create(folder: &Path) -> Result<(), Error> {
    // The last of the ancestors of a path that does not begin at the root is empty.
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.is_dir();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(|error| io_error("make the folder", folder, &error))?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync)
}

/// Gives back the names of checkpoints that were giving way to others that are not there, and removes what else killed runs left.
pub(crate) fn settle(folder: &Path) -> Result<(), Error> {
    let names = names(folder)?;
    for name in &names {
        let path = folder.join(name);
        let replaced = name.strip_prefix(REPLACED);
        // Whatever else begins so is somebody else's.
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

/// Lets a folder that is complete on the disk appear under its name, in the place of an earlier one of the same step, which [`prune`] removes. After an error all is as before.
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

/// Removes what gave way to the checkpoint that was just written, and those that are older than it and than the newest `keep` complete ones; none of these if `keep` is 0.
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
        let leaving = beside(&path, TEMPORARY);
        rename(&path, &leaving)?;
        remove(&leaving)?;
    }
    Ok(())
}

/// The folder in which a checkpoint is made before it has its name.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    beside(path, TEMPORARY)
}

/// Brings to the disk which files are in a folder.
///
/// # Errors
/// Those of the operating system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // The parent of a name alone is empty.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Elsewhere folders cannot be opened as files.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// [`sync_folder`] for checkpoints and weights, whose errors say what was refused.
pub(crate) fn sync(folder: &Path) -> Result<(), Error> {
    sync_folder(folder).map_err(|error| io_error("bring the folder to the disk", folder, &error))
}

/// Removes a folder with everything in it.
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
