//! The predictor, which runs a model of mode inference on all ranks.

use std::{path::Path, sync::Arc};

use soybean_plan::Mode;

use crate::{
    Array, Config, Error, MemoryBesidePlan, Model, Trainer, View,
    model::AnyModel,
    weights::{self, Loaded, Mapping},
};

/// Runs a model of mode inference on all ranks of its mesh, on the device of its choice.
pub struct Predictor {
    /// A trainer whose model has no training step.
    inner: Trainer,
}

impl Predictor {
    /// Starts the ranks of a generated model, with random initial weights.
    ///
    /// # Errors
    /// If the model is not of mode inference, the device cannot be used, or the model's tables are
    /// inconsistent.
    pub fn new(model: &'static dyn Model, config: Config) -> Result<Self, Error> {
        Ok(Self { inner: Trainer::start(AnyModel::Static(model), &config, Mode::Inference)? })
    }

    /// Starts the ranks of a model that is a value, such as a [`soybean_plan::Executable`].
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn new_shared(model: Arc<dyn Model>, config: Config) -> Result<Self, Error> {
        Ok(Self { inner: Trainer::start(AnyModel::Shared(model), &config, Mode::Inference)? })
    }

    /// Computes the outputs of the entry of this number, in the order in which it returns them. If
    /// every output has a part for each row, any number of rows may be given. They are computed
    /// batch by batch, and the outputs have as many rows.
    ///
    /// # Errors
    /// If the batch does not fit the entry, or a rank fails.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn predict(&mut self, entry: usize, batch: &[View<'_>]) -> Result<Vec<Array>, Error> {
        self.inner.predict_by(entry, batch)
    }

    /// Returns all parameters and buffers by name, in the order in which the model creates them.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.parameters()
    }

    /// Replaces all parameters and buffers.
    ///
    /// # Errors
    /// If a name is unknown, missing or given twice, if a shape is wrong, or if a rank fails.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        self.inner.set_parameters(parameters)
    }

    /// Replaces all parameters and buffers by those of a `.safetensors` file, an index of several,
    /// or the folder of a checkpoint.
    ///
    /// # Errors
    /// As [`weights::load`].
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        mapping: &Mapping,
    ) -> Result<Loaded, Error> {
        weights::load(&mut self.inner, path, mapping)
    }

    /// Sets the model's states to zero, as they are at the start.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn reset_states(&mut self) -> Result<(), Error> {
        self.inner.reset_states()
    }

    /// Returns the bytes that all ranks received from others in the last batch of a prediction.
    /// They are counted when they are read.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.inner.moved_bytes()
    }

    /// Returns the bytes that the host wrote to all ranks for the last batch of a prediction: to
    /// each rank its parts of the inputs, with padding. They are counted when they are written.
    #[must_use]
    pub fn fed_bytes(&self) -> u64 {
        self.inner.fed_bytes()
    }

    /// Describes the devices of all ranks, in one line.
    #[must_use]
    pub fn device_line(&self) -> String {
        self.inner.device_line()
    }

    /// Returns the memory that a rank has on its GPU beside the plan, the largest of this process.
    /// It is 0 on the CPU.
    #[must_use]
    pub fn memory_beside_plan(&self) -> MemoryBesidePlan {
        self.inner.memory_beside_plan()
    }
}
