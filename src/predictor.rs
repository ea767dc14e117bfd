//! The predictor of one model of mode inference: the runtime's predictor, with the model's batch type.

use std::{fmt, marker::PhantomData, path::Path, process::ExitCode};

use soybean_plan::{Mode, Plan};
use soybean_runtime::{
    self as runtime, Array, Config, Error,
    weights::{Loaded, Mapping},
};

use crate::{
    Batch, Network,
    command_line::{self, CommandModel},
};

/// Runs the model `N`, which is of mode inference, as its plan says. A model's module names it for its own model: `mlp::Predictor`.
pub struct Predictor<N: Network> {
    inner: runtime::Predictor,
    network: PhantomData<fn() -> N>,
}

impl<N: Network> Predictor<N> {
    /// What was decided at build time.
    pub const PLAN: Plan = N::PLAN;

    const IS_INFERENCE: () = assert!(
        matches!(N::PLAN.mode, Mode::Inference),
        "a predictor needs a model of `mode = \"inference\"`; a trainer has `predict` too"
    );

    /// A predictor with freshly drawn weights: see [`Self::load_weights`] and [`Self::set_parameters`].
    ///
    /// # Errors
    /// If the device that `config` asks for cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        const { Self::IS_INFERENCE };
        Ok(Self { inner: runtime::Predictor::new(N::model(), config)?, network: PhantomData })
    }

    /// The model's outputs, in the order in which its function returns them. Any number of rows may be given where every output has a part for each row, which most
    /// have: they are taken batch by batch, and outputs are as long.
    ///
    /// # Errors
    /// If a tensor of the batch has a number of elements that does not fit.
    pub fn predict(&mut self, batch: &N::Batch<'_>) -> Result<Vec<Array>, Error> {
        batch.with_views(|views| self.inner.predict(views))
    }

    /// The parameters and buffers by name, in the user's order of elements.
    ///
    /// # Errors
    /// If an earlier failure left the predictor unusable.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.parameters()
    }

    /// Replaces all parameters and buffers: by those of a trainer, whose model makes them by the same calls of functions and so by the same names.
    ///
    /// # Errors
    /// If a name is unknown or missing, or a shape differs.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        self.inner.set_parameters(parameters)
    }

    /// Replaces all parameters and buffers by those of a `.safetensors` file, an index of several, or a checkpoint's folder.
    ///
    /// # Errors
    /// As [`weights::load`](soybean_runtime::weights::load).
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        mapping: &Mapping,
    ) -> Result<Loaded, Error> {
        self.inner.load_weights(path, mapping)
    }

    /// The bytes that the last batch of a prediction moved between ranks, counted while they moved, over all ranks.
    pub fn moved_bytes(&self) -> u64 {
        self.inner.moved_bytes()
    }

    /// What runs where, in one line.
    pub fn device_line(&self) -> String {
        self.inner.device_line()
    }

    /// A program around the model: `plan` (also without a subcommand), `check`, `bench` and `devices`, each with `--help`. What is checked and measured is random.
    pub fn command_line() -> ExitCode {
        const { Self::IS_INFERENCE };
        let model = CommandModel { plan: N::PLAN, model: N::model(), forward: N::forward };
        command_line::predictor(&model)
    }
}

impl<N: Network> fmt::Debug for Predictor<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predictor").field("plan", &N::PLAN.strategy).finish_non_exhaustive()
    }
}
