//! The results of an evaluation.

use soybean_plan::Array;

/// The loss and the outputs that an evaluation computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss of the batch.
    pub loss: f32,
    /// The model's other outputs, in the order in which it returns them.
    pub outputs: Vec<Array>,
}
