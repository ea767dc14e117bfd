//! The trainer of one model: the runtime's trainer, with the model's batch type.

use std::{
    fmt,
    marker::PhantomData,
    path::{Path, PathBuf},
    process::ExitCode,
};

use soybean_plan::Plan;
use soybean_runtime::{
    self as runtime, Array, Config, Error, Evaluation, Trace,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    weights::{self, Loaded, Mapping},
};

use crate::{
    Batch, Network,
    command_line::{self, DataOptions, Defaults, Split, Subject},
};

/// Trains the model `N` as its plan says. A model's module names it for its own model: `mlp::Trainer`.
pub struct Trainer<N: Network> {
    inner: runtime::Trainer,
    network: PhantomData<fn() -> N>,
}

impl<N: Network> Trainer<N> {
    /// What was decided at build time.
    pub const PLAN: Plan = N::PLAN;

    /// A trainer with freshly drawn parameters.
    ///
    /// # Errors
    /// If the device that `config` asks for cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self { inner: runtime::Trainer::new(N::model(), config)?, network: PhantomData })
    }

    /// One training step; gives the loss before the update.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, a label is out of range, or the loss is not finite.
    pub fn step(&mut self, batch: &N::Batch<'_>) -> Result<f32, Error> {
        batch.with_views(|views| self.inner.step(views))
    }

    /// Hands over a batch for [`Self::step_queued`]; GPUs fetch it while the host goes on. It takes the place of one that was queued before.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, or a label is out of range.
    pub fn queue(&mut self, batch: &N::Batch<'_>) -> Result<(), Error> {
        batch.with_views(|views| self.inner.queue(views))
    }

    /// One training step on the batch that was queued; meanwhile the next is queued, if there is one.
    ///
    /// # Errors
    /// As [`Self::step`] and [`Self::queue`], or if no batch was queued.
    pub fn step_queued(&mut self, next: Option<&N::Batch<'_>>) -> Result<f32, Error> {
        match next {
            Some(next) => next.with_views(|views| self.inner.step_queued(Some(views))),
            None => self.inner.step_queued(None),
        }
    }

    /// [`Self::step_queued`], with the time of each kernel and collective on each rank.
    ///
    /// # Errors
    /// As [`Self::step_queued`].
    pub fn trace_queued(&mut self, next: Option<&N::Batch<'_>>) -> Result<(f32, Trace), Error> {
        match next {
            Some(next) => next.with_views(|views| self.inner.trace_queued(Some(views))),
            None => self.inner.trace_queued(None),
        }
    }

    /// The forward computation alone: the loss and the further outputs.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, or a label is out of range.
    pub fn evaluate(&mut self, batch: &N::Batch<'_>) -> Result<Evaluation, Error> {
        batch.with_views(|views| self.inner.evaluate(views))
    }

    /// The parameters by name, in the user's order of elements.
    ///
    /// # Errors
    /// If an earlier failure left the trainer unusable.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.parameters()
    }

    /// Replaces all parameters.
    ///
    /// # Errors
    /// If a name is unknown or missing, or a shape differs.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        self.inner.set_parameters(parameters)
    }

    /// All tensors that the optimizer keeps, by name, such as `dense.w.momentum`.
    ///
    /// # Errors
    /// If an earlier failure left the trainer unusable.
    pub fn optimizer_state(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.optimizer_state()
    }

    /// Writes a checkpoint and gives its folder.
    ///
    /// # Errors
    /// As [`Checkpoints::save`].
    pub fn save(&mut self, to: &mut Checkpoints, progress: &Progress) -> Result<PathBuf, Error> {
        to.save(&mut self.inner, progress)
    }

    /// Copies the state, and writes it as a checkpoint while training goes on.
    ///
    /// # Errors
    /// As [`Checkpoints::save_in_background`].
    pub fn save_in_background(
        &mut self,
        to: &mut Checkpoints,
        progress: &Progress,
    ) -> Result<(), Error> {
        to.save_in_background(&mut self.inner, progress)
    }

    /// Takes the parameters, the optimizer's state and the counters of a checkpoint, which may be one of another plan or number of devices, and gives how far
    /// its run had come.
    ///
    /// # Errors
    /// As [`runtime::Trainer::restore`].
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Progress, Error> {
        self.inner.restore(checkpoint)
    }

    /// Replaces parameters and buffers by those of a `.safetensors` file, an index of several, or a checkpoint's folder.
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

    /// Changes the learning rate from the next step on.
    pub fn set_learning_rate(&mut self, learning_rate: f32) {
        self.inner.set_learning_rate(learning_rate);
    }

    /// The bytes that the last step or evaluation moved between ranks, counted while they moved, over all ranks.
    pub fn moved_bytes(&self) -> u64 {
        self.inner.moved_bytes()
    }

    /// What runs where, in one line.
    pub fn device_line(&self) -> String {
        self.inner.device_line()
    }

    /// A whole program around the model: `train` (also without a subcommand), `plan`, `check` and `bench`, each with `--help`.
    ///
    /// `load` gives the data; it is not called for `plan`.
    pub fn command_line<E: fmt::Display>(
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        Self::command_line_with(Defaults::default(), load)
    }

    /// [`command_line`](Self::command_line) with other defaults for its flags.
    pub fn command_line_with<E: fmt::Display>(
        defaults: Defaults,
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        let subject = Subject { plan: N::PLAN, model: N::model(), forward: N::forward };
        command_line::main(&subject, defaults, |options| {
            load(options).map_err(|error| error.to_string())
        })
    }
}

impl<N: Network> fmt::Debug for Trainer<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("plan", &N::PLAN.strategy).finish_non_exhaustive()
    }
}
