//! Why steps cannot share a loss that is divided by numbers of the batch.

use crate::{
    builder::Site,
    diagnostic::{ModelDiagnostic, ModelPart},
    value::Value,
};

/// A part of the model that keeps steps from adding up the numerators and the counts of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) at: Value,
    pub(super) kind: ObstacleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObstacleKind {
    /// Terms of the loss have different denominators.
    Several,
    /// A divisor mixes the rows of the batch, but is no sum over them.
    NoCount,
    /// A quotient is read by a function that is not linear.
    NotLinear,
}

impl Obstacle {
    /// Returns the diagnostic of the model.
    pub(super) fn fault(self, site: Option<&Site>) -> ModelDiagnostic {
        let what = match self.kind {
            ObstacleKind::Several => {
                "one denominator for all terms of the loss, found terms with different ones"
            }
            ObstacleKind::NoCount => {
                "a loss that is divided by a sum over the rows of its batch, found another number of the batch"
            }
            ObstacleKind::NotLinear => {
                "a loss that is linear in what it divides by numbers of the batch, found another function"
            }
        };
        let help = match self.kind {
            ObstacleKind::Several => {
                "divide the sum of all terms once: `(sum + 0.1 * other * count).per(count)`"
            }
            ObstacleKind::NoCount => {
                "write `sum.per(count)`: it is `sum / count`, and the steps of an update add up both"
            }
            ObstacleKind::NotLinear => {
                "apply the function to each row, and let the loss end with their `sum.per(count)`"
            }
        };
        let place = site.filter(|it| !it.place.is_empty());
        let place = place.map(|it| format!(" (`{}` at {})", it.operator, it.place));
        let place = place.unwrap_or_default();
        let message = format!("`accumulate` needs {what}{place}");
        ModelDiagnostic { at: ModelPart::Loss, message, help: Some(help.to_owned()) }
    }
}
