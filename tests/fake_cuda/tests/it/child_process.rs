//! Child processes for tests that need the virtual devices in place of CUDA.

use std::any::type_name;
use std::env;
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;

use libloading::Library;
use soybean_fake_cuda::{has_compiler, install};

/// Runs `body`, a closure of the calling test, in a child process with the virtual devices and
/// these variables.
pub(crate) fn with_devices<F: FnOnce(&Control)>(variables: &[(&str, &str)], body: F) {
    const CHILD: &str = "SOYBEAN_TEST_CHILD";
    // The type name of a closure contains the path of its function, which is the name of the test.
    let name = type_name::<F>().trim_end_matches("::{{closure}}").split_once("::").unwrap().1;
    if env::var(CHILD).is_ok_and(|child| child == name) {
        return body(&Control::new());
    }
    if !has_compiler() {
        eprintln!("skipped: no C++ compiler");
        return;
    }
    let folder = install(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda")).unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", name, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .env(CHILD, name)
        .envs(variables.iter().copied());
    let output = child.output().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{error}");
}

/// The functions that control the devices.
pub(crate) struct Control {
    library: Library,
}

impl Control {
    fn new() -> Self {
        // SAFETY: the library's constructors do nothing.
        Self { library: unsafe { Library::new("libcuda.so.1") }.unwrap() }
    }

    /// Starts the schedule of this seed.
    pub(crate) fn reset(&self, seed: u64) {
        // SAFETY: the library declares this type.
        let reset =
            unsafe { self.library.get::<extern "C" fn(u64)>(b"soybean_fake_reset") }.unwrap();
        reset(seed);
    }

    /// Calls a control function with an integer argument.
    pub(crate) fn set(&self, function: &str, number: i64) {
        // SAFETY: the library declares this type.
        let set = unsafe { self.library.get::<extern "C" fn(i64)>(function.as_bytes()) }.unwrap();
        set(number);
    }

    /// Returns the number of problems that were reported.
    pub(crate) fn n_complaints(&self) -> u64 {
        // SAFETY: the function has this type.
        let function =
            unsafe { self.library.get::<extern "C" fn() -> u64>(b"soybean_fake_complaints") };
        function.unwrap()()
    }

    /// Returns the number of calls of a function since the last reset.
    pub(crate) fn n_calls(&self, function: &CStr) -> u64 {
        // SAFETY: the library declares this type.
        let counters = unsafe {
            self.library.get::<extern "C" fn(*const c_char) -> u64>(b"soybean_fake_counters")
        }
        .unwrap();
        counters(function.as_ptr())
    }
}
