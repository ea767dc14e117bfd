//! Keeping one checkpoint, such as the best, in a folder of its own.
//!
//! It has the files as hard links, or as copies where the file system has no links.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    Checkpoints, Error,
    checkpoint::is_complete,
    folder,
    naming::{FolderName, RUN_FILE},
    run_file::RunFile,
    tensor_file::{io_error, text},
    writer::place,
};

impl Checkpoints {
    /// Makes a checkpoint of any folder the only one in this folder, and returns its folder here.
    ///
    /// Other checkpoints that cannot be removed give a [warning](Self::take_warnings).
    ///
    /// # Errors
    /// If the files cannot be linked or copied. Then the checkpoints of this folder are unchanged.
    pub fn keep_only(&mut self, checkpoint: &Path) -> Result<PathBuf, Error> {
        let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let n_steps = match FolderName::parse(&name) {
            Some(name) => name.n_steps,
            None => RunFile::read(checkpoint)?.counters.n_steps,
        };
        let kept = self.path_after(n_steps);
        if !is_same(checkpoint, &kept) {
            folder::create(self.folder())?;
            self.warn(folder::settle(self.folder())?);
            let replaced = place(&kept, |temporary| link_files(checkpoint, temporary))?;
            self.warn(replaced.and_then(|it| folder::remove(&it).err()));
        }
        let others = self.list()?.into_iter().filter(|it| it.1 != kept);
        self.warn(others.filter_map(|it| folder::remove_checkpoint(&it.1).err()));
        Ok(kept)
    }
}

/// Returns true if the folder has all files of the checkpoint already. `run.json` has their
/// checksums.
fn is_same(checkpoint: &Path, kept: &Path) -> bool {
    let run = |folder: &Path| text(&folder.join(RUN_FILE)).ok();
    checkpoint == kept || (is_complete(kept) && run(checkpoint) == run(kept))
}

/// Puts the files of one folder into another, and waits until they are on disk.
fn link_files(from: &Path, to: &Path) -> Result<(), Error> {
    let link = || {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if fs::hard_link(entry.path(), &to).is_err() {
                fs::copy(entry.path(), &to)?;
                File::open(&to)?.sync_all()?;
            }
        }
        folder::sync_folder(to)
    };
    let what = format!("keep its files in {}", to.display());
    link().map_err(|error: io::Error| io_error(&what, from, &error))
}
