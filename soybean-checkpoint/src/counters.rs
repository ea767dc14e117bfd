//! The counters of a training run.

use serde::{Deserialize, Serialize};
use soybean_plan::MAX_TRAINED_ENTRIES;

/// The progress of a trainer. With the state and the data, it determines the next step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// The number of training steps, including those that were skipped. The noise of dropout
    /// depends on it.
    pub n_steps: u64,
    /// The number of updates of the parameters. It is less than the number of steps if several
    /// steps share an update, or if some were skipped. Adam's bias corrections depend on it.
    pub n_updates: u64,
    /// The number of updates by each entry, if there are several. Entries that train the same
    /// parameters count together, at the place of the first of them.
    #[serde(default, skip_serializing_if = "EntryCounts::is_zero")]
    pub n_updates_by: EntryCounts,
    /// The number of steps since the last update whose gradients wait for the next update.
    pub n_accumulated: u64,
    /// The power of two by which the loss is multiplied before gradients are computed, if the
    /// model scales its loss.
    pub loss_scale: f32,
    /// The number of updates since the scale last changed.
    pub n_good: u64,
}

/// A count for each of a model's first [`MAX_TRAINED_ENTRIES`] entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryCounts(pub [u64; MAX_TRAINED_ENTRIES]);

impl EntryCounts {
    /// Returns whether nothing was counted.
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// The loss scale at the start, as in `PyTorch`'s `GradScaler`.
const INITIAL_LOSS_SCALE: f32 = 65536.0;

impl Default for Counters {
    /// Returns the counters of a trainer before its first step.
    fn default() -> Self {
        Self {
            n_steps: 0,
            n_updates: 0,
            n_updates_by: EntryCounts::default(),
            n_accumulated: 0,
            loss_scale: INITIAL_LOSS_SCALE,
            n_good: 0,
        }
    }
}
