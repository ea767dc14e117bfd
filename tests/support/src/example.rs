//! Examples as programs, started as their users start them.

use std::{
    collections::BTreeSet,
    env,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

/// Builds an example with the features of the calling test, and returns the command that runs it.
///
/// The build costs little: cargo has built most of it for the tests.
#[macro_export]
macro_rules! example {
    ($name:expr) => {
        $crate::example_with_features(
            $name,
            &[
                ("cuda", cfg!(feature = "cuda")),
                ("image", cfg!(feature = "image")),
                ("mpi", cfg!(feature = "mpi")),
                ("parquet", cfg!(feature = "parquet")),
                ("tokenizers", cfg!(feature = "tokenizers")),
            ],
        )
    };
}

/// Builds an example with the features that are on, unless this process has built it, and returns
/// the command that runs it.
#[must_use]
pub fn example_with_features(name: &str, features: &[(&str, bool)]) -> Command {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(name) {
        build(name, features);
        built.insert(name.to_owned());
    }
    Command::new(profile_folder().join("examples").join(name))
}

fn build(name: &str, features: &[(&str, bool)]) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut build = Command::new(env!("CARGO"));
    // As README's command builds it: without the other packages, features of dependencies differ.
    build.args(["build", "--quiet", "--workspace", "--example", name]).current_dir(root);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    for (feature, is_on) in features {
        match (*feature, is_on) {
            // The default feature: naming it would make another build of the same code.
            ("cuda", true) => {}
            ("cuda", false) => _ = build.arg("--no-default-features"),
            (_, true) => _ = build.args(["--features", feature]),
            (_, false) => {}
        }
    }
    let status = build.status().expect("cargo starts");
    assert!(status.success(), "the example {name} does not build");
}

/// Returns `target/<profile>`, the parent of the folder of the running test.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    test.ancestors().nth(2).expect("tests are in target/<profile>/deps").to_owned()
}

/// Runs a command and returns its exit code, standard output and standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the example starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}
