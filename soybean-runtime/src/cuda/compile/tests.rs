//! Tests of NVRTC, if it is installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use super::{
    super::disk_cache::{read, write},
    *,
};

const KERNEL: &str = "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }";

/// A new folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("soybean-compile-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs a test of this module in a child process with its own cache folder.
fn in_folder(test: &str, body: impl Fn(&Path)) {
    if let Some(folder) = env::var_os("SOYBEAN_CACHE_DIR") {
        return body(Path::new(&folder));
    }
    let folder = Folder::new(test);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("cuda::compile::tests::{test}"), "--nocapture"]);
    let outcome = command.env("SOYBEAN_CACHE_DIR", &folder.0).output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

/// Returns true if NVRTC is installed, and says so if it is not.
#[expect(clippy::print_stderr, reason = "a skipped test should be visible in the output")]
fn has_compiler() -> bool {
    let found = installation().nvrtc();
    found.as_ref().err().into_iter().for_each(|why| eprintln!("skipped: {why}"));
    found.is_ok()
}

#[test]
fn kernels_are_compiled_once_unless_the_cache_is_damaged() {
    in_folder("kernels_are_compiled_once_unless_the_cache_is_damaged", |folder| {
        if !has_compiler() {
            return;
        }
        let code = cubin(KERNEL, "sm_90").unwrap();
        assert!(!code.is_empty());
        let files = || -> Vec<PathBuf> {
            fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect()
        };
        let [file] = &files()[..] else { panic!("one file: {:?}", files()) };
        // The result comes from the file, so the compiler did not run again.
        write(file, b"kept").unwrap();
        assert_eq!(cubin(KERNEL, "sm_90").unwrap(), b"kept");
        fs::write(file, "damaged").unwrap();
        assert_eq!(cubin(KERNEL, "sm_90").unwrap().len(), code.len());
        assert_eq!(read(file).map(|it| it.len()), Some(code.len()));
        cubin(KERNEL, "sm_80").unwrap();
        assert_eq!(files().len(), 2, "another architecture, another file");
    });
}

#[test]
fn compile_errors_show_source_lines() {
    in_folder("compile_errors_show_source_lines", |_| {
        if !has_compiler() {
            return;
        }
        let error = cubin("extern \"C\" __global__ void k(float* x) {\n  y = 1;\n}", "sm_90");
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Program);
        assert!(error.to_string().contains("soybean.cu(2)"), "{error}");
    });
}
