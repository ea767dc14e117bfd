//! Tests on virtual GPUs. Each runs in a second process, whose library path has the virtual driver.
#![expect(unsafe_code, reason = "the virtual machine is a C library")]
#![expect(clippy::missing_panics_doc, reason = "tests panic on errors")]
#![expect(clippy::print_stdout, reason = "skipped tests say why")]

use std::{
    env,
    ffi::{CString, OsString, c_char},
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Duration,
};

use crate::{has_compiler, install_without};

/// The variable that is set in processes with virtual GPUs.
const INSIDE: &str = "SOYBEAN_ON_VIRTUAL_GPUS";

/// A test that runs longer than this waits for something that never happens.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs `body` with virtual GPUs, in a second process that runs only the test of this full name.
///
/// `settings` are environment variables, listed in the README.
pub fn on_virtual_gpus(test: &str, settings: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    on_virtual_gpus_without(&[], test, settings, body);
}

/// Runs `body` as [`on_virtual_gpus`] does, without the libraries of these names, such as `nccl`.
pub fn on_virtual_gpus_without(
    left_out: &[&str],
    test: &str,
    settings: &[(&str, &str)],
    body: impl FnOnce(&Machine),
) {
    if env::var_os(INSIDE).is_some() {
        thread::spawn(|| {
            thread::sleep(LIMIT);
            println!("stopped after {LIMIT:?}");
            process::abort();
        });
        return body(&Machine::new());
    }
    let mut command = Command::new(env::current_exe().expect("a test has a path"));
    if let Err(why) = put_on_virtual_gpus(&mut command, left_out) {
        println!("skipped: {why}");
        return;
    }
    let output = command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .envs(settings.iter().copied())
        .output()
        .expect("the test starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "on virtual GPUs: {stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "expected that {test} runs, found {stdout}");
    println!("{stdout}");
}

/// Makes a command find virtual GPUs without these libraries.
///
/// # Errors
///
/// If there is no C++ compiler, or the machine has one of the libraries itself.
pub fn put_on_virtual_gpus(command: &mut Command, left_out: &[&str]) -> Result<(), String> {
    if !has_compiler() {
        return Err("no C++ compiler".to_owned());
    }
    if let Some(library) = left_out.iter().find(|it| is_installed(it)) {
        return Err(format!("this machine has {library} itself"));
    }
    let folder = folder(
        &["virtual_gpus"].iter().chain(left_out).copied().collect::<Vec<_>>().join("_without_"),
    );
    install_without(&folder, left_out).expect("the library is built with the tests");
    command
        .env("LD_LIBRARY_PATH", &folder)
        // Cached kernels name their compiled libraries: both last as long.
        .env("SOYBEAN_CACHE_DIR", self::folder("kernels"))
        .env("SOYBEAN_FAKE_CACHE", self::folder("compiled_kernels"))
        .envs(bare_surroundings());
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "SOYBEAN_CUDA_LIBS", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(variable);
    }
    Ok(())
}

/// Returns true if the machine has this CUDA library.
fn is_installed(library: &str) -> bool {
    let names =
        ["", ".1", ".2", ".9", ".12", ".13"].map(|version| format!("lib{library}.so{version}"));
    let is_there = |name: &String| {
        // SAFETY: NVIDIA's libraries run only their own initializers when they are opened.
        let opened = unsafe { libloading::Library::new(name) };
        let toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"];
        opened.is_ok() || toolkit.iter().any(|folder| Path::new(folder).join(name).exists())
    };
    names.iter().any(is_there)
}

/// Returns variables that hide all Python packages: the first Python in the path has none.
fn bare_surroundings() -> [(&'static str, OsString); 2] {
    let home = folder("bare");
    let programs = home.join("bin");
    fs::create_dir_all(&programs).expect("the folder for tests can be written");
    fs::write(programs.join("python3"), "").expect("so can a file in it");
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = [programs].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(folders).expect("folders of a path are separable");
    [("HOME", home.into_os_string()), ("PATH", path)]
}

/// Returns a folder in `target/tmp`.
fn folder(name: &str) -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    let target = test.ancestors().nth(3).expect("tests are in target/<profile>/deps");
    target.join("tmp").join(name)
}

/// The virtual machine of this process.
pub struct Machine(libloading::Library);

impl Machine {
    fn new() -> Self {
        // SAFETY: the library has no code that runs when it is opened.
        let library = unsafe { libloading::Library::new("libsoybean_fake_cuda.so") };
        Self(library.expect("the virtual driver is there"))
    }

    /// Resets all counters, and orders the streams by another seed.
    pub fn reset(&self, seed: u64) {
        self.function::<extern "C" fn(u64)>("soybean_fake_reset")(seed);
    }

    /// Skips the n-th later wait of a stream for an event; none if `number` is 0.
    pub fn skip_wait(&self, number: i64) {
        self.function::<extern "C" fn(i64)>("soybean_fake_skip_wait")(number);
    }

    /// Makes the n-th later launch of a kernel fail; none if `number` is 0.
    pub fn fail_launch(&self, number: i64) {
        self.function::<extern "C" fn(i64)>("soybean_fake_fail_launch")(number);
    }

    /// Makes the n-th later launch of a kernel run for ever; none if `number` is 0.
    pub fn hang_launch(&self, number: i64) {
        self.function::<extern "C" fn(i64)>("soybean_fake_hang_launch")(number);
    }

    /// Sets whether NCCL reports failures.
    pub fn fail_communicators(&self, fail: bool) {
        self.function::<extern "C" fn(bool)>("soybean_fake_fail_communicators")(fail);
    }

    /// Returns the number of calls of a driver function since the last reset.
    #[must_use]
    pub fn n_calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("a name has no zeros");
        self.function::<extern "C" fn(*const c_char) -> u64>("soybean_fake_counters")(name.as_ptr())
    }

    /// Returns the memory in bytes that is in use on the GPU of this thread.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        let information =
            self.function::<extern "C" fn(&mut usize, &mut usize) -> i32>("cuMemGetInfo_v2");
        assert_eq!(information(&mut free, &mut total), 0, "a GPU is current");
        total - free
    }

    /// Returns the number of complaints since the start.
    #[must_use]
    pub fn n_complaints(&self) -> u64 {
        self.function::<extern "C" fn() -> u64>("soybean_fake_complaints")()
    }

    /// Returns a function of the virtual driver; its type is in the README.
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers above name the types of the functions.
        *unsafe { self.0.get::<F>(name.as_bytes()) }.expect("the virtual driver has it")
    }
}
