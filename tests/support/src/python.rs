//! Python with the packages that a test needs.

use std::{env, path::Path, process::Command};

/// Returns a Python that can import these modules: that of `SOYBEAN_PYTHON`, of `.ci/run`, or of
/// the system.
#[must_use]
pub fn python_with(modules: &str) -> Option<String> {
    let of_ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/bin/python");
    let given = env::var("SOYBEAN_PYTHON").ok();
    let candidates = given.into_iter().chain([of_ci.display().to_string(), "python3".to_owned()]);
    let can_import = |python: &String| {
        let tried = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        tried.is_ok_and(|it| it.status.success())
    };
    candidates.into_iter().find(can_import)
}
