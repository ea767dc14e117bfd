//! How far a trainer has come, in numbers that its steps depend on.

use serde::{Deserialize, Serialize};

/// How far a trainer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// The number of training steps so far: what dropout drops depends on it, and Adam's correction of its means.
    pub n_steps: u64,
}
