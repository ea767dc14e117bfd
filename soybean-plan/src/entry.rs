//! Entries: the functions of a model that run by themselves.

use std::{borrow::Cow, ops::Range};

use crate::BufferId;

/// The most entries of a model that is trained.
pub const MAX_TRAINED_ENTRIES: usize = 8;

/// A function of the model that runs by itself, on its own batch, with the parameters and states
/// that all entries share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The function's name.
    pub name: Cow<'static, str>,
    /// The number of its calls in the computation that the plan is measured by.
    pub n_calls: u64,
    /// The numbers of its inputs in [`Tables::inputs`](crate::Tables::inputs).
    pub inputs: Range<usize>,
    /// The numbers of its results in [`Tables::outputs`](crate::Tables::outputs).
    pub outputs: Range<usize>,
    /// True if the second result is a weight of the loss: a number of the batch, such as a count of
    /// labels, that divides it.
    pub has_loss_weight: bool,
    /// The numbers of the parameters and buffers that it asks for, call by call, in
    /// [`Tables::parameters`](crate::Tables::parameters). What calls share is there for each call.
    pub parameters: Cow<'static, [usize]>,
    /// The bytes that the collectives of one evaluation move, over all ranks.
    pub bytes: u64,
    /// Its training steps; none in inference.
    pub training: Option<TrainingStep>,
}

impl Entry {
    /// Returns the only entry of a model, which takes and returns all its tensors.
    #[must_use]
    pub fn only(n_inputs: usize, n_outputs: usize, n_parameters: usize, bytes: u64) -> Self {
        Self {
            name: Cow::Borrowed("forward"),
            n_calls: 1,
            inputs: 0..n_inputs,
            outputs: 0..n_outputs,
            has_loss_weight: false,
            parameters: (0..n_parameters).collect(),
            bytes,
            training: None,
        }
    }

    /// Returns the numbers of the parameters and buffers that it asks for, each once.
    #[must_use]
    pub fn distinct_parameters(&self) -> Vec<usize> {
        let mut distinct = Vec::new();
        for number in self.parameters.iter() {
            if !distinct.contains(number) {
                distinct.push(*number);
            }
        }
        distinct
    }

    /// Returns the bytes that one of its training steps moves, or in inference one of its
    /// predictions.
    #[must_use]
    pub fn bytes_of_call(&self) -> u64 {
        self.training.as_ref().map_or(self.bytes, |it| it.bytes)
    }

    /// Returns the entry with training steps that leave the loss in this buffer and move so many
    /// bytes.
    #[must_use]
    pub fn trained(self, loss: BufferId, bytes: u64) -> Self {
        Self { training: Some(TrainingStep::only(loss, bytes)), ..self }
    }
}

/// The training steps of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingStep {
    /// The buffer in which a step leaves the loss, a scalar that every rank holds.
    pub loss: BufferId,
    /// The buffer in which a step leaves the 2-norm of all gradients, a scalar that every rank
    /// holds; none if nothing needs it.
    pub gradient_norm: Option<BufferId>,
    /// The bytes that the collectives of one step move, over all ranks.
    pub bytes: u64,
    /// The number of the first entry that trains the same parameters. Entries with equal numbers
    /// count their updates together.
    pub trains_like: usize,
}

impl TrainingStep {
    /// Returns the buffers in which a step leaves numbers.
    pub fn left(&self) -> impl Iterator<Item = BufferId> + use<> {
        [self.loss].into_iter().chain(self.gradient_norm)
    }

    /// Returns the training steps of the only entry of a model.
    #[must_use]
    pub const fn only(loss: BufferId, bytes: u64) -> Self {
        Self { loss, gradient_norm: None, bytes, trains_like: 0 }
    }
}
