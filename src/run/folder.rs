//! The folder of a run. One run at a time writes into it. The output of earlier runs is moved
//! aside, never removed.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use soybean_runtime::{
    Error,
    checkpoint::{BEST, CHECKPOINTS, create_folder},
};

use super::{
    checkpoint_manager,
    output::{self, write_error},
};

/// Creates the folder if needed. Other runs cannot write into it while the returned file is open.
pub(crate) fn lock(out: &Path) -> Result<File, Error> {
    create_folder(out).map_err(|it| write_error(out, &it))?;
    let path = out.join(LOCK);
    let file = open_lock(&path).map_err(|it| write_error(&path, &it))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(write_error(out, &"another run is writing there")),
        // Some file systems have no locks. A lock only guards against mistakes.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

const LOCK: &str = ".lock";

/// Opens the lock, or creates it. It is an error if it is a symbolic link, which others may have
/// put there.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW);
    options.open(path)
}

/// Returns true if the checkpoint is in `checkpoints` or `best` of this folder.
pub(crate) fn contains(out: &Path, checkpoint: &Path) -> bool {
    let parent = checkpoint.canonicalize().ok().and_then(|it| Some(it.parent()?.to_owned()));
    let is_parent = |name| out.join(name).canonicalize().is_ok_and(|it| Some(it) == parent);
    [CHECKPOINTS, BEST].into_iter().any(is_parent)
}

/// Moves the output of an earlier run aside. Returns the folder that then has it.
pub(crate) fn archive_run(out: &Path) -> Result<Option<PathBuf>, Error> {
    let is_of_run = |name: &str| [CHECKPOINTS, BEST].contains(&name) || output::is_run_file(name);
    let names = || -> io::Result<Vec<OsString>> {
        let names = fs::read_dir(out)?.map(|it| Ok(it?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.retain(|it| it.to_str().is_some_and(is_of_run));
        Ok(names)
    };
    let mut names = names().map_err(|it| archive_error(out, &it))?;
    let mut prepared = Vec::new();
    for name in [CHECKPOINTS, BEST] {
        if is_elsewhere(&out.join(name), out) {
            names.retain(|it| it != name);
            let found = checkpoint_manager::list(&out.join(name))?.into_iter();
            prepared.push((name, found.map(|it| it.1).collect::<Vec<_>>()));
        }
    }
    prepared.retain(|it| !it.1.is_empty());
    if names.is_empty() && prepared.is_empty() {
        return Ok(None);
    }
    let go = || {
        let archive = create_archive(out)?;
        names.iter().try_for_each(|name| fs::rename(out.join(name), archive.join(name)))?;
        prepared
            .iter()
            .try_for_each(|(name, found)| move_checkpoints(found, out, name, &archive))?;
        Ok(Some(archive))
    };
    go().map_err(|it| archive_error(out, &it))
}

/// Moves checkpoints after more than `n_steps` steps aside, with copies of the run's configuration
/// and metrics. Returns the folder that then has them.
pub(crate) fn archive_later_checkpoints(
    out: &Path,
    n_steps: u64,
) -> Result<Option<PathBuf>, Error> {
    let mut later = Vec::new();
    for name in [CHECKPOINTS, BEST] {
        let found = checkpoint_manager::list(&out.join(name))?.into_iter();
        let found = found.filter(|it| it.0 > n_steps).map(|it| it.1);
        later.push((name, found.collect::<Vec<_>>()));
    }
    later.retain(|it| !it.1.is_empty());
    let go = || {
        if later.is_empty() {
            return Ok(None);
        }
        let archive = create_archive(out)?;
        later.iter().try_for_each(|(name, found)| move_checkpoints(found, out, name, &archive))?;
        for name in [output::CONFIG, output::METRICS].into_iter().filter(|it| out.join(it).exists())
        {
            fs::copy(out.join(name), archive.join(name))?;
        }
        Ok(Some(archive))
    };
    go().map_err(|it| archive_error(out, &it))
}

/// Moves checkpoints to the folder `name` of an archive. Those on another disk stay on it: the
/// archive gets a link to a folder beside them.
fn move_checkpoints(
    checkpoints: &[PathBuf],
    out: &Path,
    name: &str,
    archive: &Path,
) -> io::Result<()> {
    let (from, to) = (out.join(name), archive.join(name));
    let place = match is_elsewhere(&from, out) {
        true => {
            let place = create_archive(&from.canonicalize()?)?;
            link(&place, &to)?;
            place
        }
        false => {
            fs::create_dir_all(&to)?;
            to
        }
    };
    let name = |it: &PathBuf| it.file_name().unwrap_or_default().to_owned();
    checkpoints.iter().try_for_each(|it| fs::rename(it, place.join(name(it))))
}

/// Returns true if a folder was prepared by the user: a link, or the root of another disk.
fn is_elsewhere(folder: &Path, out: &Path) -> bool {
    #[cfg(unix)]
    let disk = |it: &Path| fs::metadata(it).map(|it| std::os::unix::fs::MetadataExt::dev(&it)).ok();
    #[cfg(not(unix))]
    let disk = |it: &Path| fs::metadata(it).map(|_| ()).ok();
    folder.is_symlink() || (folder.is_dir() && disk(folder) != disk(out))
}

#[cfg(unix)]
fn link(to: &Path, from: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, from)
}

#[cfg(windows)]
fn link(to: &Path, from: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_dir(to, from)
}

/// Creates the first of `old`, `old.2`, .. that does not exist.
fn create_archive(out: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let name = if number == 1 { "old".to_owned() } else { format!("old.{number}") };
        let place = out.join(name);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| place),
        }
    }
}

fn archive_error(out: &Path, found: &io::Error) -> Error {
    write_error(out, &format!("what an earlier run left cannot be moved aside: {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{
        checkpoint_manager::tests::{checkpoint, steps},
        output::tests::{TestFolder, folder as temporary},
    };

    /// Returns the folder of a run with checkpoints at steps 3, 9 and 10, the last of which is the
    /// best.
    fn after_a_run(name: &str) -> TestFolder {
        let out = temporary(name);
        for step in [3, 9, 10] {
            checkpoint(&out.join(CHECKPOINTS), step);
        }
        checkpoint(&out.join(BEST), 10);
        for name in ["config.toml", "metrics.jsonl", "events.out.tfevents.1.2.soybean", "mine.txt"]
        {
            fs::write(out.join(name), name).unwrap();
        }
        out
    }

    /// Where others can write, a link may be in the place of a file.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        use std::os::unix::fs::symlink;
        let out = temporary("links");
        let target = out.join("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, out.join(".lock")).unwrap();
        let error = lock(&out).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}/.lock: ", out.display())), "{error}");
        fs::remove_file(out.join(".lock")).unwrap();
        symlink(&target, out.join("config.toml.tmp")).unwrap();
        let _lock = lock(&out).unwrap();
        output::OutputFiles::open(&out, None, "epochs = 3").unwrap();
        assert_eq!(fs::read_to_string(out.join("config.toml")).unwrap(), "epochs = 3");
        assert_eq!(fs::read_to_string(target).unwrap(), "precious");
    }

    #[test]
    fn runs_are_moved_aside_and_none_is_removed() {
        let out = after_a_run("aside");
        let archive = archive_run(&out).unwrap().unwrap();
        assert_eq!(archive, out.join("old"));
        assert_eq!(
            (steps(&archive.join(CHECKPOINTS)), steps(&archive.join(BEST))),
            (vec![3, 9, 10], vec![10])
        );
        for name in ["config.toml", "metrics.jsonl", "events.out.tfevents.1.2.soybean"] {
            assert_eq!(fs::read_to_string(archive.join(name)).unwrap(), name);
            assert!(!out.join(name).exists());
        }
        assert_eq!(archive_run(&out).unwrap(), None, "the user's own file stays");
        checkpoint(&out.join(CHECKPOINTS), 4);
        // A checkpoint that was moved aside is not part of this folder's run.
        assert!(contains(&out, &out.join("checkpoints/step-0000000004")));
        assert!(!contains(&out, &archive.join("checkpoints/step-0000000003")));
        assert_eq!(archive_run(&out).unwrap(), Some(out.join("old.2")));
        assert_eq!(steps(&archive.join(CHECKPOINTS)), [3, 9, 10]);
    }

    // Guards: a link to another disk that is moved aside, so that the next run fills this one.
    #[cfg(unix)]
    #[test]
    fn folders_that_were_prepared_stay() {
        let (out, disk) = (temporary("prepared"), temporary("disk"));
        std::os::unix::fs::symlink(&*disk, out.join(CHECKPOINTS)).unwrap();
        assert_eq!(archive_run(&out).unwrap(), None, "nothing is there yet");
        assert!(out.join(CHECKPOINTS).is_symlink());
        for step in [3, 9] {
            checkpoint(&out.join(CHECKPOINTS), step);
        }
        let archive = archive_later_checkpoints(&out, 3).unwrap().unwrap();
        assert_eq!(steps(&archive.join(CHECKPOINTS)), [9]);
        assert_eq!(steps(&out.join(CHECKPOINTS)), [3]);
        let archive = archive_run(&out).unwrap().unwrap();
        assert_eq!((steps(&archive.join(CHECKPOINTS)), steps(&disk)), (vec![3], vec![]));
        assert!(out.join(CHECKPOINTS).is_symlink() && out.join("old.2").exists());
        assert_eq!(steps(&disk.join("old.2")), [3], "on the disk that the user has chosen");
    }

    #[test]
    fn later_checkpoints_are_moved_aside() {
        let out = after_a_run("later");
        assert_eq!(archive_later_checkpoints(&out, 10).unwrap(), None);
        let archive = archive_later_checkpoints(&out, 9).unwrap().unwrap();
        assert_eq!((steps(&out.join(CHECKPOINTS)), steps(&out.join(BEST))), (vec![3, 9], vec![]));
        assert_eq!(
            (steps(&archive.join(CHECKPOINTS)), steps(&archive.join(BEST))),
            (vec![10], vec![10])
        );
        for name in ["config.toml", "metrics.jsonl"] {
            assert!(archive.join(name).exists() && out.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn one_run_at_a_time_writes_into_a_folder() {
        let folder = temporary("locked");
        let out = folder.join("run");
        let first = lock(&out).unwrap();
        let error = lock(&out).unwrap_err().to_string();
        assert_eq!(error, format!("cannot write {}: another run is writing there", out.display()));
        drop(first);
        lock(&out).unwrap();
    }
}
