//! The interface to the trainer whose state is saved and restored.

use std::any::Any;

use crate::{Array, Counters, Error};

/// The state of a training run: the tensors that persist from step to step, and the counters.
///
/// Tensors are numbered: first the parameters and buffers, then the tensors of the optimizer, in
/// the order of [`StateSpec`]. A run may consist of several processes. Each of them then has such
/// a state, and calls the same functions of this crate in the same order.
pub trait TrainingState {
    /// Returns the names and shapes of all tensors.
    fn spec(&self) -> StateSpec;

    /// Returns the number of steps so far, and the other counters.
    fn counters(&self) -> Counters;

    /// Replaces the counters.
    fn set_counters(&mut self, counters: Counters);

    /// Calls `take` with each whole tensor, in the order of the numbers, until it returns false.
    ///
    /// Few tensors are in memory at a time. `spare` returns memory of tensors that are no longer
    /// needed, if there is any. Of several processes, the first calls this, and all others call
    /// [`Self::hand_out_tensors`].
    ///
    /// # Errors
    /// If a device fails.
    fn for_each_tensor(
        &mut self,
        spare: &mut dyn FnMut() -> Option<Vec<f32>>,
        take: &mut dyn FnMut(Array) -> bool,
    ) -> Result<(), Error>;

    /// Sends this process's part of all tensors to the first process.
    ///
    /// # Errors
    /// If a device fails.
    fn hand_out_tensors(&mut self) -> Result<(), Error>;

    /// Replaces all elements of the tensor with this number.
    ///
    /// # Errors
    /// If a device fails.
    fn load_tensor(&mut self, number: usize, elements: &[f32]) -> Result<(), Error>;

    /// Returns true in the process that writes files.
    fn is_first_process(&self) -> bool;

    /// Combines the outcomes of all processes: if one of them failed, all return an error.
    ///
    /// # Errors
    /// The error of this process, or of the first other process whose error arrives.
    fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error>
    where
        Self: Sized;

    /// Checks that all processes give the same text, which describes what each of them reads.
    /// `what` names it in the error.
    ///
    /// # Errors
    /// If the texts differ, in all processes.
    fn agree(&mut self, what: &str, text: &str) -> Result<(), Error>;

    /// Makes the state unusable in all processes, because it was changed in part. Returns the
    /// error.
    fn invalidate(&mut self, error: Error) -> Error;

    /// Returns a guard. Until it is dropped, the other processes do not end this one, even after
    /// an error, because it writes a checkpoint.
    fn write_guard(&self) -> Box<dyn Any + Send>;
}

/// The names and shapes of the tensors of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// The name of the model.
    pub model: String,
    /// The parameters and buffers. They have the numbers from 0.
    pub parameters: Vec<TensorSpec>,
    /// The tensors of the optimizer. Their numbers follow those of the parameters.
    pub optimizer: Vec<TensorSpec>,
    /// The number of steps that share an update of the parameters.
    pub accumulate: u64,
}

/// The name and the shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name, such as `dense.w`.
    pub name: String,
    /// The extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The number of terms of this shape that a checkpoint has of it, whose sum it is; 1 for a
    /// tensor itself. Only sums of the steps that share an update have several.
    pub n_terms: usize,
    /// A hash of how the model uses a parameter, as that of a
    /// [`Parameter`](soybean_plan::Parameter); 0 if it is not known.
    pub use_hash: u64,
}

impl TensorSpec {
    /// Returns the shape of the terms together, as a checkpoint has them.
    #[must_use]
    pub fn saved_shape(&self) -> Vec<usize> {
        let n_terms = (self.n_terms > 1).then_some(self.n_terms);
        n_terms.into_iter().chain(self.shape.iter().copied()).collect()
    }

    /// Returns the number of elements, of all terms together.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.saved_shape().iter().product()
    }
}
