//! The results of an evaluation.

use soybean_plan::Array;

/// The loss and the outputs that an evaluation computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss of the batch.
    pub loss: f32,
    /// The number of the batch that divides the loss, such as a count of labels that are not
    /// ignored. It weighs the losses of several batches in their mean; `None` where all batches
    /// count alike, or several numbers divide the loss.
    pub loss_weight: Option<f32>,
    /// The model's other outputs, in the order in which it returns them.
    pub outputs: Vec<Array>,
}
