//! Runs an example as its users do, built the way the tests are.

use std::{env, path::PathBuf, process::Command};

/// Builds an example and gives the command that runs it. Building anew costs little: the tests' own build has most of it.
pub(crate) fn example(name: &str) -> Command {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", name]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    // With the tests' own features.
    if !cfg!(feature = "cuda") {
        build.arg("--no-default-features");
    }
    for (is_on, feature) in [(cfg!(feature = "image"), "image"), (cfg!(feature = "mpi"), "mpi")] {
        if is_on {
            build.args(["--features", feature]);
        }
    }
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "the example {name} does not build");
    Command::new(examples_folder().join(name))
}

/// `target/<profile>/examples`, beside the folder of the running test.
fn examples_folder() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).expect("tests are in target/<profile>/deps");
    profile.join("examples")
}

/// What a command left: exit code, standard output, standard error.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the example starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}
