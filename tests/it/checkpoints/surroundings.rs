//! Folders for tests, and tests that run again in a process of their own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// An empty folder for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkpoints").join(name);
    let _not_there = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The files of a folder by name, and their bytes.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .map(|path| (name(&path), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The names of what is in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|it| name(&it.unwrap().path())).collect();
    names.sort();
    names
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The folder that the process of a test was given, if it is one.
pub(crate) fn given_folder() -> Option<PathBuf> {
    env::var_os("SOYBEAN_CHECKPOINT_TEST").map(PathBuf::from)
}

/// A command that runs `before` and, behind it, one test of this program in a process of its own, with a folder of its own.
pub(crate) fn again(before: &[&str], test: &str, folder: &Path) -> Command {
    let this = env::current_exe().unwrap();
    let arguments = [this.to_str().unwrap(), test, "--exact", "--nocapture", "--test-threads=1"];
    let words: Vec<&str> = before.iter().copied().chain(arguments).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("SOYBEAN_CHECKPOINT_TEST", folder);
    command
}
