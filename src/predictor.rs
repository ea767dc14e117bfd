//! The predictor of one inference model: the runtime's predictor with the model's batch type.

use std::{fmt, marker::PhantomData, path::Path, process::ExitCode};

use soybean_plan::{Mode, Plan};
use soybean_runtime::{
    self as runtime, Array, Config, Error, MemoryBesidePlan,
    checkpoint::Checkpoint,
    data::{Classes, Tokenizer},
    weights::{Loaded, Mapping},
};

use crate::{
    Batch, Network,
    command_line::{self, CommandModel},
    generation::TextModel,
    run::Numberings,
};

/// A predictor of the model `N`, which has mode inference. A model's module has an alias for its
/// own: `mlp::Predictor`.
pub struct Predictor<N: Network> {
    inner: runtime::Predictor,
    /// The meaning of the integers of inputs in the data that the weights were trained on.
    numberings: Numberings,
    network: PhantomData<fn() -> N>,
}

impl<N: Network> Predictor<N> {
    /// The plan of the build.
    pub const PLAN: Plan = N::PLAN;

    const IS_INFERENCE: () = assert!(
        matches!(N::PLAN.mode, Mode::Inference),
        "a predictor needs a model of `mode = \"inference\"`; a trainer has `predict` too"
    );

    /// Returns a predictor with initialized weights; see [`Self::load_weights`] and
    /// [`Self::set_parameters`].
    ///
    /// # Errors
    /// If the device that `config` names cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        const { Self::IS_INFERENCE };
        let inner = runtime::Predictor::new(N::model(), config)?;
        Ok(Self { inner, numberings: Numberings::default(), network: PhantomData })
    }

    /// Returns the outputs of the entry that takes this type of batch, in the order in which its
    /// function returns them.
    ///
    /// If each row of the outputs depends on one row of the inputs, as in most models, any number
    /// of rows may be given. They are processed in batches.
    ///
    /// # Errors
    /// If the number of elements of a tensor does not fit.
    pub fn predict<B: Batch<N>>(&mut self, batch: &B) -> Result<Vec<Array>, Error> {
        batch.with_views(|views| self.inner.predict(B::ENTRY, views))
    }

    /// Returns the parameters and buffers by name, in the user's order of elements.
    ///
    /// # Errors
    /// If an earlier error left the predictor unusable.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.parameters()
    }

    /// Replaces all parameters and buffers, by those of a trainer for example. Its model gives them
    /// the same names if it calls the same functions.
    ///
    /// # Errors
    /// If a name is unknown or missing, or a shape differs.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        self.inner.set_parameters(parameters)
    }

    /// Replaces all parameters and buffers by those of a `.safetensors` file, an index of several
    /// files, or a checkpoint's folder.
    ///
    /// # Errors
    /// As [`weights::load`](soybean_runtime::weights::load).
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        mapping: &Mapping,
    ) -> Result<Loaded, Error> {
        let path = path.as_ref();
        let loaded = self.inner.load_weights(path, mapping)?;
        let progress = Checkpoint::progress_beside(path)?;
        self.numberings = progress.as_ref().map(Numberings::stored).unwrap_or_default();
        Ok(loaded)
    }

    /// Returns the classes of an input of labels of the model that was trained, if the weights are
    /// those of a checkpoint and a reader of its data numbered them, as `ImageFolder` does.
    pub fn classes(&self, input: &str) -> Option<&Classes> {
        self.numberings.classes(input)
    }

    /// Checks that texts are read by the tokenizer of the data that the model was trained on, if
    /// the weights are those of a checkpoint that names it.
    ///
    /// # Errors
    /// If it is another tokenizer.
    pub fn check_tokenizer(&self, tokenizer: &dyn Tokenizer) -> Result<(), Error> {
        self.numberings.check_tokenizer(tokenizer)
    }

    /// Sets the model's states to zero, as they are at the start: caches of attention, for example,
    /// before another text.
    ///
    /// # Errors
    /// If an earlier error left the predictor unusable.
    pub fn reset_states(&mut self) -> Result<(), Error> {
        self.inner.reset_states()
    }

    /// Returns the bytes that the last batch of a prediction moved between all ranks, counted as
    /// they moved.
    pub fn moved_bytes(&self) -> u64 {
        self.inner.moved_bytes()
    }

    /// Returns the bytes that the host wrote to all ranks for the last batch of a prediction,
    /// counted as they were written: to each rank its parts of the inputs.
    pub fn fed_bytes(&self) -> u64 {
        self.inner.fed_bytes()
    }

    /// Returns one line about the devices in use.
    pub fn device_line(&self) -> String {
        self.inner.device_line()
    }

    /// Returns the memory that a rank has on its GPU beside the plan, the largest of this process.
    /// It is 0 on the CPU.
    pub fn memory_beside_plan(&self) -> MemoryBesidePlan {
        self.inner.memory_beside_plan()
    }

    /// Runs the command line of the model: `plan` (the default), `check`, `bench` and `devices`,
    /// each with `--help`. Inputs are random.
    pub fn command_line() -> ExitCode {
        const { Self::IS_INFERENCE };
        let model = CommandModel::of::<N>();
        command_line::predictor(&model)
    }

    /// Runs the command line of a model that continues texts: `generate` (the default), and the
    /// commands of [`Self::command_line`]. Its entries are those that
    /// [`Generation::step`](crate::generation::Generation::step) runs.
    pub fn command_line_of_texts(texts: TextModel) -> ExitCode {
        const { Self::IS_INFERENCE };
        let model = CommandModel { texts: Some(texts), ..CommandModel::of::<N>() };
        command_line::predictor(&model)
    }

    pub(crate) fn untyped(&mut self) -> &mut runtime::Predictor {
        &mut self.inner
    }
}

impl<N: Network> fmt::Debug for Predictor<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predictor").field("plan", &N::PLAN.strategy).finish_non_exhaustive()
    }
}
