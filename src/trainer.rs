//! The trainer of one model: the runtime's trainer with the model's batch type.

mod parameters;
mod state;

use std::{fmt, marker::PhantomData, process::ExitCode, sync::Arc};

use soybean_plan::{Mode, Plan};
use soybean_runtime::{
    self as runtime, Array, Config, Counters, Error, Evaluation, MemoryBesidePlan, Trace,
    data::Dataset,
};

use crate::{
    Batch, DataOptions, DatasetEvaluation, EagerEvaluation, Event, Flow, Metric, Network, Split,
    Summary, TrainConfig,
    command_line::{self, CommandModel},
    non_finite::explained,
    oracle::eager_evaluation,
    run::{self, EvaluatedModel, Numberings},
};

/// A trainer of the model `N`. A model's module has an alias for its own: `mlp::Trainer`.
pub struct Trainer<N: Network> {
    inner: runtime::Trainer,
    /// The meaning of the integers of inputs in the data that the weights were trained on.
    numberings: Numberings,
    network: PhantomData<fn() -> N>,
}

impl<N: Network> Trainer<N> {
    /// The plan of the build.
    pub const PLAN: Plan = N::PLAN;

    const IS_TRAINED: () = assert!(
        matches!(N::PLAN.mode, Mode::Training),
        "a trainer needs a model that is trained: this one is of `mode = \"inference\"`"
    );

    /// Returns a trainer with initialized parameters.
    ///
    /// # Errors
    /// If the device that `config` names cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        const { Self::IS_TRAINED };
        let inner = runtime::Trainer::new(N::model(), config)?;
        Ok(Self { inner, numberings: Numberings::default(), network: PhantomData })
    }

    /// Runs one training step; returns the loss before the update. If the model has several
    /// entries, the type of the batch chooses the one that takes it.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, a label is out of range, the
    /// learning rate is not finite, or the loss is not finite. The last error leaves the trainer as
    /// it was, and names the first tensor that was not finite. A model that skips such steps fails
    /// only after a hundred of them in a row.
    ///
    /// If the loss is finite, but the next value of a parameter, a buffer or a state of the
    /// optimizer is not, the error names that, too. Other numbers have changed then: steps,
    /// evaluations and saves fail until a checkpoint is restored.
    pub fn step<B: Batch<N>>(&mut self, batch: &B) -> Result<f32, Error> {
        let (tables, recipe) = (N::model().tables(), N::PLAN.recipe);
        batch.with_views(|views| {
            let stepped = self.inner.step_by(B::ENTRY, views);
            let batch = (B::ENTRY, views);
            stepped.map_err(|error| explained(error, &mut self.inner, tables, recipe, batch))
        })
    }

    /// Updates the parameters by the mean of the gradients since the last update, if steps share
    /// updates and some wait for theirs. Returns the number of these steps, such as those at the
    /// end of a run.
    ///
    /// # Errors
    /// As [`Self::step`], or if the steps counted nothing that the loss is a mean over.
    pub fn finish_update(&mut self) -> Result<u64, Error> {
        self.inner.finish_update()
    }

    /// Queues a batch for [`Self::step_queued`], and replaces a queued one. GPUs copy it while the
    /// host continues.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, or a label is out of range.
    pub fn queue<B: Batch<N>>(&mut self, batch: &B) -> Result<(), Error> {
        batch.with_views(|views| self.inner.queue_by(B::ENTRY, views))
    }

    /// Runs one training step on the queued batch, and queues the next batch meanwhile, if there is
    /// one.
    ///
    /// ```
    /// #[soybean::model(gpus = 2)]
    /// fn tiny(x: Tensor<f32, 4, 8>, y: Tensor<i32, 4>) -> Tensor {
    ///     x.matmul(param("w", [8, 3], he_normal())).cross_entropy(y)
    /// }
    /// # use soybean::prelude::*;
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut trainer = tiny::Trainer::new(soybean::Config::default())?;
    ///     let batch = tiny::Batch { x: &[0.5; 32], y: &[0, 1, 2, 1] };
    ///     trainer.queue(&batch)?;
    ///     let first = trainer.step_queued(Some(&batch))?;
    ///     let last = trainer.step_queued(None)?;
    ///     assert!(last < first);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Self::step`] and [`Self::queue`], or if no batch was queued.
    pub fn step_queued(&mut self, next: Option<&N::Batch<'_>>) -> Result<f32, Error> {
        match next {
            Some(next) => next.with_views(|views| self.inner.step_queued(Some(views))),
            None => self.inner.step_queued(None),
        }
    }

    /// Runs [`Self::step_queued`], and measures each kernel and collective on each rank.
    ///
    /// # Errors
    /// As [`Self::step_queued`].
    pub fn trace_queued(&mut self, next: Option<&N::Batch<'_>>) -> Result<(f32, Trace), Error> {
        match next {
            Some(next) => next.with_views(|views| self.inner.trace_queued(Some(views))),
            None => self.inner.trace_queued(None),
        }
    }

    /// Runs the forward computation; returns the loss and the other outputs.
    ///
    /// # Errors
    /// If a tensor of the batch has the wrong number of elements, or a label is out of range.
    pub fn evaluate<B: Batch<N>>(&mut self, batch: &B) -> Result<Evaluation, Error> {
        batch.with_views(|views| self.inner.evaluate_by(B::ENTRY, views))
    }

    /// Calls the model's function as ordinary Rust on a batch, with the parameters of this trainer,
    /// in double precision. Returns its outputs, and the tensors that it
    /// [probes](crate::Tensor::probe).
    ///
    /// ```
    /// #[soybean::model(gpus = 2)]
    /// fn tiny(x: Tensor<f32, 4, 8>, y: Tensor<i32, 4>) -> Tensor {
    ///     let h = x.matmul(param("w", [8, 3], he_normal())).probe("h");
    ///     h.cross_entropy(y)
    /// }
    /// # use soybean::prelude::*;
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut trainer = tiny::Trainer::new(soybean::Config::default())?;
    ///     let found = trainer.eager(&tiny::Batch { x: &[0.5; 32], y: &[0, 1, 2, 1] })?;
    ///     let (name, h) = &found.probes[0];
    ///     assert_eq!((&name[..], &h.shape[..]), ("h", &[4, 3][..]));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn eager<B: Batch<N>>(&mut self, batch: &B) -> Result<EagerEvaluation, Error> {
        let model = CommandModel::of::<N>();
        batch.with_views(|views| eager_evaluation(&model, &mut self.inner, (B::ENTRY, views)))
    }

    /// Evaluates all rows of a data set. Returns the mean loss over the rows, and the metrics that
    /// apply to the model, such as [`Metric::usual`].
    ///
    /// The last batch is padded; the padding does not count.
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
    /// use soybean::{Metric, Split};
    ///
    /// let data = Split::random::<mlp::Network>(1000, 100, 0);
    /// let mut trainer = mlp::Trainer::new(soybean::Config::default())?;
    /// let held_out = trainer.evaluate_dataset(data.held_out, &Metric::usual())?;
    /// println!("loss {}, accuracy {:?}", held_out.loss, held_out.metric("accuracy"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the columns do not fit the inputs of the model, their classes are other than in training,
    /// the data cannot be read, the loss of a batch is not finite, or a rank fails.
    pub fn evaluate_dataset(
        &mut self,
        dataset: impl Dataset + 'static,
        metrics: &[Metric],
    ) -> Result<DatasetEvaluation, Error> {
        let dataset: Arc<dyn Dataset> = Arc::new(dataset);
        let model = EvaluatedModel { tables: N::model().tables(), recipe: N::PLAN.recipe };
        run::evaluate_dataset(&mut self.inner, model, &dataset, &self.numberings, metrics)
    }

    /// Returns the outputs other than the loss. Inputs that they do not depend on, such as labels,
    /// may be left out.
    ///
    /// If each row of the outputs depends on one row of the inputs, as in most models, any number
    /// of rows may be given. They are processed in batches, and [`moved_bytes`](Self::moved_bytes)
    /// counts the last batch.
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
    ///     let batch = classifier::Batch { x: &image, ..Default::default() };
    ///     let outputs = trainer.predict(&batch)?;
    ///     assert_eq!(outputs[0].shape, [1, 10]);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// If the model has no outputs besides its loss, or the number of elements of a tensor does not
    /// fit.
    pub fn predict<B: Batch<N>>(&mut self, batch: &B) -> Result<Vec<Array>, Error> {
        batch.with_views(|views| self.inner.predict_by(B::ENTRY, views))
    }

    /// Trains as `config` says, with checkpoints and metrics; prints nothing.
    ///
    /// The learning rates and the order of the data are those of `config`. The device and the
    /// initial parameters are those of this trainer, which should be created with `config.trainer`.
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
    /// let out = Some("runs/mlp".into());
    /// let config = TrainConfig { out, resume: Resume::Auto, ..TrainConfig::new(20, 0.05) };
    /// let mut trainer = mlp::Trainer::new(config.trainer.clone())?;
    /// let summary = trainer.fit(&config, &Split::random::<mlp::Network>(1000, 100, 0))?;
    /// println!("{} steps, best held-out loss {:?}", summary.n_steps, summary.best);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If settings contradict each other, the data do not fit the model or cannot be read, a
    /// checkpoint cannot be read or a file cannot be written, the loss is not finite, or a rank
    /// fails. The error names the last checkpoint.
    pub fn fit(&mut self, config: &TrainConfig, data: &Split) -> Result<Summary, Error> {
        self.fit_watched(config, data, |_| Flow::Continue)
    }

    /// Runs [`fit`](Self::fit), and sends events to `watch`, which may end the run.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_watched(
        &mut self,
        config: &TrainConfig,
        data: &Split,
        mut watch: impl FnMut(&Event<'_>) -> Flow,
    ) -> Result<Summary, Error> {
        let fitted =
            run::fit(&mut self.inner, &N::PLAN, N::model().tables(), config, data, &mut watch);
        let inputs = &N::model().tables().inputs;
        self.numberings = Numberings::of("training", &*data.train, inputs).unwrap_or_default();
        fitted.map_err(|it| it.error)
    }

    /// Returns the counters of the run, such as steps and updates.
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }

    /// Sets the counters of the run, for a state that was saved with them.
    pub fn set_counters(&mut self, counters: Counters) {
        self.inner.set_counters(counters);
    }

    /// Returns the norm of all gradients of the last step before clipping; `None` if the model does
    /// not compute it, or the step made no update.
    pub fn gradient_norm(&self) -> Option<f32> {
        self.inner.gradient_norm()
    }

    /// Returns true if the last step was skipped because its loss or its gradients were not finite.
    pub fn was_skipped(&self) -> bool {
        self.inner.was_skipped()
    }

    /// Returns the optimizer's tensors by name, such as `dense.w.momentum`.
    ///
    /// # Errors
    /// If an earlier error left the trainer unusable.
    pub fn optimizer_state(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.optimizer_state()
    }

    /// Sets the learning rate from the next step on.
    pub fn set_learning_rate(&mut self, learning_rate: f32) {
        self.inner.set_learning_rate(learning_rate);
    }

    /// Returns the bytes that the last step or evaluation moved between all ranks, counted as they
    /// moved.
    pub fn moved_bytes(&self) -> u64 {
        self.inner.moved_bytes()
    }

    /// Returns the bytes that the host wrote to all ranks for the batch of the last step or
    /// evaluation, counted as they were written: to each rank its parts of the inputs.
    pub fn fed_bytes(&self) -> u64 {
        self.inner.fed_bytes()
    }

    /// Returns one line about the devices in use.
    pub fn device_line(&self) -> String {
        self.inner.device_line()
    }

    /// Returns the memory that a rank has on its GPU beside the plan, the largest of this process.
    /// It is 0 on the CPU.
    #[must_use]
    pub fn memory_beside_plan(&self) -> MemoryBesidePlan {
        self.inner.memory_beside_plan()
    }

    /// Runs the command line of the model: `train` (the default), `plan`, `check`, `bench` and
    /// `devices`, each with `--help`.
    ///
    /// `load` returns the data; it is not called for `plan` and `devices`.
    pub fn command_line<E: fmt::Display>(
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        Self::command_line_with(TrainConfig::default(), load)
    }

    /// Runs [`command_line`](Self::command_line) with other defaults for its flags.
    pub fn command_line_with<E: fmt::Display>(
        defaults: TrainConfig,
        load: impl FnOnce(&DataOptions) -> Result<Split, E>,
    ) -> ExitCode {
        const { Self::IS_TRAINED };
        let model = CommandModel::of::<N>();
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
