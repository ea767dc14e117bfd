//! What a trainer counts: with the state and the data all that the next step depends on.

use serde::{Deserialize, Serialize};
use soybean_plan::{NonFinite, Tables};

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// The training steps so far, also those that were skipped. Dropout's noise depends on it.
    pub n_steps: u64,
    /// The updates of the parameters so far: fewer than steps where several share one, or where some were skipped. Adam's bias corrections depend on it.
    pub n_updates: u64,
    /// The steps since the last update whose gradients wait for the next.
    pub n_accumulated: u64,
    /// What the loss is multiplied by before gradients are taken, where a model scales it: a power of two.
    pub loss_scale: f32,
    /// The updates since the scale last changed.
    pub n_good: u64,
}

/// The updates without a skipped step after which the scale is doubled, and what it is at the start: those of `PyTorch`'s `GradScaler`.
const N_GOOD: u64 = 2000;
const FIRST_SCALE: f32 = 65536.0;

impl Default for Counters {
    /// Those of a trainer that has not made a step.
    fn default() -> Self {
        Self { n_steps: 0, n_updates: 0, n_accumulated: 0, loss_scale: FIRST_SCALE, n_good: 0 }
    }
}

impl Counters {
    /// Whether the next step updates the parameters, unless it is skipped.
    pub(crate) const fn is_update(&self, tables: &Tables) -> bool {
        self.n_accumulated + 1 >= tables.accumulate
    }

    /// After a step whose gradients were finite.
    pub(crate) fn after_step(self, tables: &Tables) -> Self {
        let n_steps = self.n_steps + 1;
        if !self.is_update(tables) {
            return Self { n_steps, n_accumulated: self.n_accumulated + 1, ..self };
        }
        let next = Self { n_steps, n_updates: self.n_updates + 1, n_accumulated: 0, ..self };
        if tables.non_finite != NonFinite::Scale {
            return next;
        }
        // The scale and its inverse stay normal numbers.
        let doubled = (self.loss_scale * 2.0).min(1.0 / f32::MIN_POSITIVE);
        match self.n_good + 1 {
            n_good if n_good < N_GOOD => Self { n_good, ..next },
            _ => Self { n_good: 0, loss_scale: doubled, ..next },
        }
    }

    /// After a step that was skipped.
    pub(crate) fn after_skip(self, tables: &Tables) -> Self {
        let next = Self { n_steps: self.n_steps + 1, ..self };
        if tables.non_finite != NonFinite::Scale {
            return next;
        }
        Self { n_good: 0, loss_scale: (self.loss_scale * 0.5).max(f32::MIN_POSITIVE), ..next }
    }
}
