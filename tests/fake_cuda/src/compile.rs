//! CUDA C to a shared library, by way of a C++ compiler.
//!
//! The launcher is compiled build_once and kept, so that a text costs no more than itself; texts are kept too, by their hash.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// What is checked while kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sanitize {
    /// Nothing; reading uninitialised memory still gives NaN.
    Nothing,
    /// Addresses and undefined behaviour. The process must have been started with [`sanitizer_library`] in `LD_PRELOAD`, and a fault ends it with a report.
    AddressAndUndefined,
}

/// The launcher's files: headers first, then what is compiled.
const HEADERS: [(&str, &str); 3] = [
    ("include/simt_state.h", include_str!("../include/simt_state.h")),
    ("include/simt.h", include_str!("../include/simt.h")),
    ("simt/fiber.h", include_str!("../simt/fiber.h")),
];
const SOURCES: [(&str, &str); 3] = [
    ("simt/fiber.cpp", include_str!("../simt/fiber.cpp")),
    ("simt/warp.cpp", include_str!("../simt/warp.cpp")),
    ("simt/launch.cpp", include_str!("../simt/launch.cpp")),
];

/// Flags of every compilation: CUDA C lets floats be read as vectors, and keeps `a * b + c` apart only where it is told to, which the CPU always does.
const FLAGS: [&str; 6] =
    ["-std=c++17", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-fno-exceptions"];

impl Sanitize {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::AddressAndUndefined => &[
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
                "-fsanitize-sections=simt_shared",
                "-g1",
                "-fno-omit-frame-pointer",
            ],
        }
    }
}

/// Compiles a text and gives the shared library that [`crate::Module::load`] takes; kept in `SOYBEAN_FAKE_CACHE` or in the folder of temporary files.
///
/// # Errors
///
/// What the compiler says, with lines of the text, or why there is no compiler.
pub fn compile(text: &str, sanitize: Sanitize) -> Result<PathBuf, String> {
    let folder = env::var_os("SOYBEAN_FAKE_CACHE")
        .map_or_else(|| env::temp_dir().join("soybean-fake-cuda"), PathBuf::from);
    compile_in(&folder, text, sanitize)
}

/// [`compile`], with the results kept in a folder of one's own.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_in(folder: &Path, text: &str, sanitize: Sanitize) -> Result<PathBuf, String> {
    let launcher = launcher(folder, sanitize)?;
    let library = folder.join(format!("{:016x}.so", hash_of(&(text, sanitize))));
    build_once(&library, |work| {
        fs::create_dir_all(work)
            .and_then(|()| fs::write(work.join("kernels.cu"), text))
            .map_err(|error| io_error(work, &error))?;
        let mut command = compiler(work, sanitize);
        // Weak symbols, which inline functions would have, need sections of their own for what they share. The order of the text is that of shared memory.
        command.args(["-fno-weak", "-fno-toplevel-reorder", "-fvisibility=hidden"]);
        // -O1: a text is run a few times, so that compiling it would take longer than running it faster saves.
        command.args(["-O1", "-shared", "-include"]).arg(launcher.join("include/simt.h"));
        command
            .args(["-x", "c++", "kernels.cu", "-x", "none"])
            .arg(launcher.join("simt.o"))
            .args(["-o", "kernels.so"]);
        run(command)?;
        Ok(work.join("kernels.so"))
    })
}

/// Whether there is a C++ compiler: `CXX`, or `g++`.
#[must_use]
pub fn has_compiler() -> bool {
    Command::new(compiler_name())
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The library that a process must preload to run what [`Sanitize::AddressAndUndefined`] compiled; none if the compiler has none.
#[must_use]
pub fn sanitizer_library() -> Option<PathBuf> {
    let output = Command::new(compiler_name()).arg("-print-file-name=libasan.so").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

fn compiler_name() -> String {
    env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

fn compiler(folder: &Path, sanitize: Sanitize) -> Command {
    let mut command = Command::new(compiler_name());
    command.current_dir(folder).args(FLAGS).args(sanitize.flags());
    command
}

/// The folder with the launcher's headers and its one object file.
fn launcher(folder: &Path, sanitize: Sanitize) -> Result<PathBuf, String> {
    let made = folder.join(format!("simt-{:016x}", hash_of(&sanitize)));
    build_once(&made, |work| {
        for (name, text) in HEADERS.iter().chain(&SOURCES) {
            let path = work.join(name);
            path.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::write(&path, text))
                .map_err(|error| io_error(&path, &error))?;
        }
        let mut command = compiler(work, sanitize);
        command
            .args(["-O2", "-r", "-nostdlib", "-o", "simt.o"])
            .args(SOURCES.map(|(name, _)| name));
        run(command)?;
        Ok(work.to_owned())
    })
}

/// Of the input given and of all that every compilation depends on.
fn hash_of(input: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    (compiler_name(), FLAGS, HEADERS, SOURCES).hash(&mut hasher);
    hasher.finish()
}

/// Makes `path` unless it is there: `make` works in a folder of its own, and what it gives is moved, so that no process ever finds half of it.
fn build_once(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if path.exists() {
        return Ok(path.to_owned());
    }
    let work = path.with_extension(format!(
        "{}-{}",
        process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    let made = make(&work).and_then(|made| match fs::rename(&made, path) {
        Err(error) if !path.exists() => Err(io_error(path, &error)),
        Ok(()) | Err(_) => Ok(path.to_owned()),
    });
    // What is left is of no use, and no harm if it stays.
    let _ = fs::remove_dir_all(&work);
    made
}

fn run(mut command: Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{}: {error}", compiler_name()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn io_error(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
