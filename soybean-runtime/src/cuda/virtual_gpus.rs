//! Tests on virtual GPUs: each runs again in a process of its own that finds them where CUDA's libraries are looked for.

use std::{env, process::Command, sync::Arc};

use super::{gpu::Gpu, libraries::find};

/// Set in the processes that find virtual GPUs.
const INSIDE: &str = "SOYBEAN_ON_VIRTUAL_GPUS";

/// Runs `body` where there are virtual GPUs: in another process, which runs this test alone; `test` is its path.
#[expect(
    clippy::print_stdout,
    reason = "whoever reads the output should know that nothing was tried"
)]
pub(super) fn on_virtual_gpus(test: &str, settings: &[(&str, &str)], body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    if !soybean_fake_cuda::has_compiler() {
        println!("skipped: no C++ compiler");
        return;
    }
    let program = env::current_exe().unwrap();
    let folder = program.with_file_name("virtual_gpus");
    soybean_fake_cuda::install(&folder).unwrap();
    let output = Command::new(&program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .env("SOYBEAN_CACHE_DIR", program.with_file_name("virtual_kernels"))
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "on virtual GPUs: {stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "expected that {test} runs, found {stdout}");
}

/// The first of the virtual GPUs.
pub(super) fn gpus(n: usize) -> Vec<Arc<Gpu>> {
    find().gpus(n).unwrap()
}

/// Numbers from -1 to 1, different for each seed.
pub(super) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let word = |at: usize| soybean_plan::random::mixed(seed << 32 | at as u64) >> 40;
    (0..n).map(|at| word(at) as f32 / (1 << 23) as f32 - 1.0).collect()
}
