//! Which checkpoint a folder means: that of one, of all checkpoints of a run, or of the run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Error, folder,
    naming::{BEST, CHECKPOINTS, RUN_FILE},
    tensor_file::checkpoint_error,
};

/// Returns the folder itself, if it is a checkpoint, or the only checkpoint in it; `None` if there
/// is none. The best checkpoint of a run is one of its others.
///
/// # Errors
/// If there are several, or the folder cannot be listed.
pub(crate) fn checkpoint_in(folder: &Path) -> Result<Option<PathBuf>, Error> {
    if is_checkpoint(folder) {
        return Ok(Some(folder.to_owned()));
    }
    let mut found = BTreeMap::new();
    for place in [folder, &folder.join(BEST), &folder.join(CHECKPOINTS)] {
        found.extend(folder::checkpoints(place)?);
    }
    let newest = found.pop_last().map(|it| it.1);
    match (newest, found.len()) {
        (Some(newest), n_others @ 1..) => {
            let (folder, newest, n_found) = (folder.display(), newest.display(), n_others + 1);
            Err(checkpoint_error(format!(
                "{folder}: expected one checkpoint, found {n_found}; the newest is {newest}"
            )))
        }
        (newest, _) => Ok(newest),
    }
}

/// Returns the checkpoint whose weights a folder means: for the folder of a run its best one.
///
/// # Errors
/// As [`checkpoint_in`].
pub(crate) fn weights_in(folder: &Path) -> Result<Option<PathBuf>, Error> {
    match is_checkpoint(folder) {
        true => Ok(Some(folder.to_owned())),
        false => match checkpoint_in(&folder.join(BEST))? {
            Some(best) => Ok(Some(best)),
            None => checkpoint_in(folder),
        },
    }
}

fn is_checkpoint(folder: &Path) -> bool {
    folder.join(RUN_FILE).is_file()
}
