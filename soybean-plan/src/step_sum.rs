//! The states that sum what the steps of an update share, among the states of a program.

use crate::State;

/// The end of the names of sums of gradients: `<parameter>.gradient_sum`.
pub const GRADIENT_SUM: &str = ".gradient_sum";

/// The end of the names of sums of what a loss counts: `loss.<number>.count_sum`.
pub const COUNT_SUM: &str = ".count_sum";

impl State {
    /// Returns whether a state of this name sums what the steps of an update share.
    #[must_use]
    pub fn is_step_sum(name: &str) -> bool {
        name.ends_with(GRADIENT_SUM) || name.ends_with(COUNT_SUM)
    }
}
