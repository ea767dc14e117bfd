//! Folders for tests, and tests that run in a second process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns an empty folder for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkpoints").join(name);
    let _not_there = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the files of a folder by name, with their bytes.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .map(|path| (name(&path), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Returns the names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|it| name(&it.unwrap().path())).collect();
    names.sort();
    names
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Returns the folder of a second process, if this is one.
pub(crate) fn given_folder() -> Option<PathBuf> {
    env::var_os("SOYBEAN_CHECKPOINT_TEST").map(PathBuf::from)
}

/// Returns a command that runs `before` followed by one test of this program in a second process
/// with a folder.
pub(crate) fn rerun(before: &[&str], test: &str, folder: &Path) -> Command {
    let this = env::current_exe().unwrap();
    let arguments = [this.to_str().unwrap(), test, "--exact", "--nocapture", "--test-threads=1"];
    let words: Vec<&str> = before.iter().copied().chain(arguments).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("SOYBEAN_CHECKPOINT_TEST", folder);
    command
}
