//! Shared by the test programs of the workspace: models, examples as programs, and Python.
#![expect(clippy::missing_panics_doc, reason = "tests panic on errors")]

pub mod averaged;
mod example;
pub mod models;
mod python;

pub use example::{example_with_features, run};
pub use python::python_with;
