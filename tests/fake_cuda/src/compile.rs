//! Compilation of CUDA C to a shared library by a C++ compiler.
//!
//! The launcher is compiled once. Results are cached by a hash of the source.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// Checks of running kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sanitize {
    /// No checks. Reading uninitialized memory still gives NaN.
    Nothing,
    /// Addresses and undefined behavior. The process must be started with [`sanitizer_library`] in
    /// `LD_PRELOAD`. A violation ends it with a report.
    AddressAndUndefined,
}

/// Headers of the launcher.
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

/// Compiler flags. CUDA C may read floats as vectors. It contracts `a * b + c` only on request, so
/// contraction is off.
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

/// Compiles source to a shared library for [`crate::Module::load`]. It is cached in
/// `SOYBEAN_FAKE_CACHE` or in the folder of temporary files.
///
/// # Errors
///
/// The compiler's messages with lines of the source, or the reason why there is no compiler.
pub fn compile(text: &str, sanitize: Sanitize) -> Result<PathBuf, String> {
    let folder = env::var_os("SOYBEAN_FAKE_CACHE")
        .map_or_else(|| env::temp_dir().join("soybean-fake-cuda"), PathBuf::from);
    compile_in(&folder, text, sanitize)
}

/// As [`compile`], with the cache in the given folder.
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
        // Weak symbols, as of inline functions, would need separate sections for shared memory. The
        // order of the source is the order of shared memory.
        command.args(["-fno-weak", "-fno-toplevel-reorder", "-fvisibility=hidden"]);
        // -O0: most kernels run a few times only. -O1 takes three times as long to compile, and
        // saves a quarter of a run.
        command.args(["-O0", "-shared", "-include"]).arg(launcher.join("include/simt.h"));
        command
            .args(["-x", "c++", "kernels.cu", "-x", "none"])
            .arg(launcher.join("simt.o"))
            .args(["-o", "kernels.so"]);
        run(command)?;
        Ok(work.join("kernels.so"))
    })
}

/// Returns true if there is a C++ compiler: `CXX`, or `g++`.
#[must_use]
pub fn has_compiler() -> bool {
    Command::new(compiler_name())
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Returns the library to preload for [`Sanitize::AddressAndUndefined`], if the compiler has it.
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

/// Returns the folder with the launcher's headers and object file.
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

/// Returns the hash of an input and of everything that all compilations depend on.
fn hash_of(input: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    (compiler_name(), FLAGS, HEADERS, SOURCES).hash(&mut hasher);
    hasher.finish()
}

/// Builds `path` unless it exists. `make` works in a temporary folder, and its result is renamed,
/// so that no process sees part of it.
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
    // Remaining files are useless, but harmless.
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
