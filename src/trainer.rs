//! The trainer of one model: the runtime's trainer, with the model's batch type.

use std::{
    fmt,
    marker::PhantomData,
    path::{Path, PathBuf},
    process::ExitCode,
};

use soybean_plan::{Mode, Plan};
use soybean_runtime::{
    self as runtime, Array, Config, Counters, Error, Evaluation, Trace,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    weights::{self, Loaded, Mapping},
};

use crate::{
    Batch, DataOptions, Event, Flow, Network, Split, Summary, TrainConfig,
    command_line::{self, CommandModel},
    run,
};

/// Trains the model `N` as its plan says. A model's module names it for its own model: `mlp::Trainer`.
pub struct Trainer<N: Network> {
    inner: runtime::Trainer,
    network: PhantomData<fn() -> N>,
}

impl<N: Network> Trainer<N> {
    /// What was decided at build time.
    pub const PLAN: Plan = N::PLAN;

    const IS_TRAINED: () = assert!(
        matches!(N::PLAN.mode, Mode::Training),
        "a trainer needs a model that is trained: this one is of `mode = \"inference\"`"
    );

    /// A trainer with freshly drawn parameters.
    ///
    /// # Errors
    /// If the device that `config` asks for cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        const { Self::IS_TRAINED };
        Ok(Self { inner: runtime::Trainer::new(N::model(), config)?, network: PhantomData })
    }

    /// One training step; gives the loss before the update.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, a label is out of range, or the loss is not finite; where the model skips such steps, only after a
    /// hundred of them in a row.
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

    /// The further outputs alone, of the inputs on which they depend; others, such as labels, are not read: `&[]` will do. Any number of rows may be given where every output
    /// has a part for each row, which most have: they are taken batch by batch, and outputs are as long. After several batches [`moved_bytes`](Self::moved_bytes) is of the last.
    ///
    /// ```
    /// #[soybean::model(gpus = 2)]
    /// fn classifier(x: Tensor<f32, 32, 784>, y: Tensor<i32, 32>) -> (Tensor, Tensor) {
    ///     let logits = x.matmul(param("w", [784, 10], he_normal()));
    ///     (logits.cross_entropy(y), logits)
    /// }
    /// # use soybean::prelude::*;
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut trainer = classifier::Trainer::new(soybean::Config::default())?;
    ///     // .. training ..
    ///     let image = [0.5; 784];
    ///     let outputs = trainer.predict(&classifier::Batch { x: &image, y: &[] })?;
    ///     assert_eq!(outputs[0].shape, [1, 10]);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// If the model has no outputs beside its loss, or a tensor of the batch has a number of elements that does not fit.
    pub fn predict(&mut self, batch: &N::Batch<'_>) -> Result<Vec<Array>, Error> {
        batch.with_views(|views| self.inner.predict(views))
    }

    /// Trains as `config` says, with checkpoints, metrics and all else that it asks for; prints nothing.
    ///
    /// The learning rates and the order of the data are those of `config`; the device and the seed of the parameters are those with which this trainer was made, so it is best made
    /// with `config.trainer`.
    ///
    /// ```no_run
    /// # #[soybean::model(gpus = 2)]
    /// # mod mlp {
    /// #     use soybean::prelude::*;
    /// #     pub(crate) fn forward(x: Tensor<f32, 16, 64>, y: Tensor<i32, 16>) -> Tensor {
    /// #         x.matmul(param("w", [64, 10], zeros())).cross_entropy(y)
    /// #     }
    /// # }
    /// # fn main() -> Result<(), soybean::Error> {
    /// use soybean::{Resume, Split, TrainConfig};
    ///
    /// let config = TrainConfig { out: Some("runs/mlp".into()), resume: Resume::Auto, ..TrainConfig::new(20, 0.05) };
    /// let mut trainer = mlp::Trainer::new(config.trainer.clone())?;
    /// let summary = trainer.fit(&config, &Split::random::<mlp::Network>(1000, 100, 0))?;
    /// println!("{} steps, best held-out loss {:?}", summary.n_steps, summary.best);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If choices contradict each other, the data do not fit the model or cannot be read, a checkpoint cannot be read or a file written, the loss is not finite, or a rank fails. The
    /// error names the last checkpoint.
    pub fn fit(&mut self, config: &TrainConfig, data: &Split) -> Result<Summary, Error> {
        self.fit_watched(config, data, |_| Flow::Continue)
    }

    /// [`fit`](Self::fit), telling `watch` what happens, which may end the run.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_watched(
        &mut self,
        config: &TrainConfig,
        data: &Split,
        mut watch: impl FnMut(&Event<'_>) -> Flow,
    ) -> Result<Summary, Error> {
        let fitted = run::fit(&mut self.inner, N::model().tables(), config, data, &mut watch);
        fitted.map_err(|it| it.error)
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

    /// The moving averages of the trained parameters by name, without the bias of their start at 0, and buffers as they are; before the first update the
    /// parameters themselves.
    ///
    /// # Errors
    /// If the model keeps no averages (`ema = 0.999`), or an earlier failure left the trainer unusable.
    pub fn averaged_parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.averaged_parameters()
    }

    /// How far the run has come: steps, updates, and what goes with them.
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }

    /// Goes on as if the run had come this far: for states that were saved with these counters.
    pub fn set_counters(&mut self, counters: Counters) {
        self.inner.set_counters(counters);
    }

    /// The norm of all gradients together in the last step, before they were clipped; none if the model has no use for it, or the step made no update.
    pub fn gradient_norm(&self) -> Option<f32> {
        self.inner.gradient_norm()
    }

    /// Whether the last step left everything as it was, because its loss or its gradients were not finite.
    pub fn was_skipped(&self) -> bool {
        self.inner.was_skipped()
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

    /// A whole program around the model: `train` (also without a subcommand), `plan`, `check`, `bench` and `devices`, each with `--help`.
    ///
    /// `load` gives the data; it is not called for `plan` and `devices`.
    pub fn command_line<E: fmt::Display>(
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        Self::command_line_with(TrainConfig::default(), load)
    }

    /// [`command_line`](Self::command_line) with other defaults for its flags.
    pub fn command_line_with<E: fmt::Display>(
        defaults: TrainConfig,
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        const { Self::IS_TRAINED };
        let model = CommandModel { plan: N::PLAN, model: N::model(), forward: N::forward };
        command_line::trainer(&model, defaults, |options| {
            load(options).map_err(|error| error.to_string())
        })
    }
}

impl<N: Network> fmt::Debug for Trainer<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("plan", &N::PLAN.strategy).finish_non_exhaustive()
    }
}
