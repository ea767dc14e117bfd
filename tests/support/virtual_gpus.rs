//! Tests on virtual GPUs: each runs again in a process of its own that finds them where CUDA's libraries are looked for.
#![expect(unsafe_code, reason = "the virtual machine is a C library")]

use std::{
    env,
    ffi::CString,
    path::{Path, PathBuf},
    process::Command,
};

/// Set in the processes that find virtual GPUs.
const INSIDE: &str = "SOYBEAN_ON_VIRTUAL_GPUS";

/// Runs `body` where there are virtual GPUs: in another process, which runs this test alone. `settings` are environment variables, as the README of
/// `tests/fake_cuda` lists them.
pub(crate) fn on_virtual_gpus(test: &str, settings: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    if env::var_os(INSIDE).is_some() {
        return body(&Machine::new());
    }
    if !soybean_fake_cuda::has_compiler() {
        println!("skipped: no C++ compiler");
        return;
    }
    let folder = folder("virtual_gpus");
    soybean_fake_cuda::install(&folder).expect("the library is built with the tests");
    let output = Command::new(env::current_exe().expect("a test has a path"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .env("SOYBEAN_CACHE_DIR", self::folder("kernels"))
        .envs(settings.iter().copied())
        .output()
        .expect("the test starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "on virtual GPUs: {stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "expected that {test} runs, found {stdout}");
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The machine of this process.
pub(crate) struct Machine(libloading::Library);

impl Machine {
    fn new() -> Self {
        // SAFETY: the library has no code that runs when it is opened.
        let library = unsafe { libloading::Library::new("libcuda.so.1") };
        Self(library.expect("the virtual driver is there"))
    }

    /// Begins another order of all streams, with all counts at zero.
    pub(crate) fn reset(&self, seed: u64) {
        // SAFETY: the function has this signature.
        let reset = unsafe { self.0.get::<extern "C" fn(u64)>(b"soybean_fake_reset") };
        reset.expect("the virtual driver has it")(seed);
    }

    /// Leaves out the n-th wait of a stream for an event from here on; none if `number` is 0.
    pub(crate) fn skip_wait(&self, number: i64) {
        // SAFETY: the function has this signature.
        let skip = unsafe { self.0.get::<extern "C" fn(i64)>(b"soybean_fake_skip_wait") };
        skip.expect("the virtual driver has it")(number);
    }

    /// How often a function of the driver was called since the last reset.
    pub(crate) fn n_calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("a name has no zeros");
        // SAFETY: the function has this signature.
        let count = unsafe {
            self.0.get::<extern "C" fn(*const std::ffi::c_char) -> u64>(b"soybean_fake_counters")
        };
        count.expect("the virtual driver has it")(name.as_ptr())
    }
}
