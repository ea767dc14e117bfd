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
                "the terms of the loss are divided by different numbers of the batch"
            }
            ObstacleKind::NoCount => {
                "the loss is divided by a number of the batch that is no sum over its rows"
            }
            ObstacleKind::NotLinear => {
                "the loss is no linear function of a term that is divided by a number of the batch"
            }
        };
        let help = match self.kind {
            ObstacleKind::Several => {
                "divide their sum once: `(labels + 0.1 * other * count).per(count)`"
            }
            ObstacleKind::NoCount | ObstacleKind::NotLinear => {
                "write `sum.per(count)` for what the steps add up: the gradients of `sum`, and `count`"
            }
        };
        let place = site.filter(|it| !it.place.is_empty());
        let place = place.map(|it| format!(" (`{}` at {})", it.operator, it.place));
        let place = place.unwrap_or_default();
        let message = format!("{what}, so steps cannot share an update (`accumulate`){place}");
        ModelDiagnostic { at: ModelPart::Loss, message, help: Some(help.to_owned()) }
    }
}
