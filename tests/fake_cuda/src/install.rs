//! Installation of the library under the names of CUDA's libraries.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// Number of files that this process has created, for unique temporary names.
static N_MADE: AtomicU64 = AtomicU64::new(0);

/// All names link to one file, so that a process that loads several of them has one set of devices.
const NAMES: [&str; 9] = [
    "libcuda.so.1",
    "libcuda.so",
    "libnvrtc.so.13",
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libcudnn.so.9",
    "libnccl.so.2",
    "libnccl.so",
    "libsoybean_fake_cuda.so",
];

/// Creates links to the library in a folder, under the names of CUDA's libraries. A process with
/// this folder in `LD_LIBRARY_PATH` finds the virtual devices.
///
/// # Errors
///
/// If the library is not next to the running program, where cargo builds it for tests, or the
/// folder cannot be written.
pub fn install(folder: &Path) -> Result<PathBuf, String> {
    install_without(folder, &[])
}

/// As [`install`], without the given libraries, such as `nccl`.
///
/// # Errors
///
/// As [`install`].
pub fn install_without(folder: &Path, omitted: &[&str]) -> Result<PathBuf, String> {
    let library = library()?;
    create_folder(folder)?;
    let is_installed =
        |name: &&str| !omitted.iter().any(|other| name.starts_with(&format!("lib{other}.so")));
    for name in NAMES.into_iter().filter(is_installed) {
        let path = folder.join(name);
        if fs::read_link(&path).is_ok_and(|found| found == library) {
            continue;
        }
        put(&path, |aside| symlink(&library, aside))?;
    }
    Ok(folder.to_owned())
}

/// Copies the library to a folder under names without a version, which development packages add for
/// the compiler. Loaders take the copies for other libraries than those of [`install`].
///
/// # Errors
///
/// As [`install`].
pub fn install_development_names(folder: &Path) -> Result<PathBuf, String> {
    let library = library()?;
    create_folder(folder)?;
    for name in ["libnvrtc.so", "libcublasLt.so", "libcudnn.so"] {
        put(&folder.join(name), |aside| fs::copy(&library, aside).map(|_| ()))?;
    }
    Ok(folder.to_owned())
}

fn create_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Creates a file under a temporary name and renames it: other threads and processes may install
/// into the same folder.
fn put(path: &Path, create: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), String> {
    let number = N_MADE.fetch_add(1, Ordering::Relaxed);
    let aside = path.with_added_extension(format!("{}.{number}", process::id()));
    create(&aside)
        .and_then(|()| fs::rename(&aside, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the newest build of the library in the folder of the running program, its parent, or the
/// `deps` folder of either.
fn library() -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let folders = program
        .ancestors()
        .skip(1)
        .take(2)
        .flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let candidates =
        folders.map(|folder| folder.join("libsoybean_fake_cuda.so")).filter(|path| path.is_file());
    let age = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    candidates
        .max_by_key(age)
        .ok_or_else(|| format!("no libsoybean_fake_cuda.so near {}", program.display()))
}
