//! Shared by the test programs of the workspace: models, examples as programs, Python and virtual
//! GPUs.
#![expect(clippy::missing_panics_doc, reason = "tests panic on errors")]

pub mod averaged;
mod example;
pub mod models;
mod python;
pub mod virtual_gpus;

pub use example::{example_with_features, run};
pub use python::python_with;
