//! Programs: everything that a run needs to know of a compiled model.

use std::borrow::Cow;

use crate::{DType, Kernel, Mesh, Mode, NonFinite, Precision, Tile, random::mixed};

/// The number of a buffer in [`Tables::buffers`].
pub type BufferId = usize;

/// What every rank of a mesh does: the tables that describe its memory and its ends, the kernels, and the steps that use them.
///
/// Generated code holds the same descriptors in statics and the steps as calls; a `Program` is the value from which it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Memory, inputs, parameters, outputs.
    pub tables: Tables,
    /// The descriptors that the steps number, of kernels and collectives alike.
    pub kernels: Cow<'static, [Kernel]>,
    /// One training step: loss, gradients, updates. There are none in inference.
    pub train: Vec<Step>,
    /// The forward computation alone: loss and further outputs.
    pub evaluate: Vec<Step>,
}

impl Program {
    /// The steps that the plan is measured by: those of a training step, or in inference those of a prediction.
    #[must_use]
    pub fn measured(&self) -> &[Step] {
        match self.tables.mode() {
            Mode::Training => &self.train,
            Mode::Inference => &self.evaluate,
        }
    }
}

/// One step of a program: a kernel by number, and the buffers that it reads and writes, in the order that [`Kernel`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the kernel in [`Program::kernels`].
    pub kernel: usize,
    /// The buffers read.
    pub inputs: Vec<BufferId>,
    /// The buffers written. A map's may be its inputs; no other kernel's may.
    pub results: Vec<BufferId>,
}

/// Where things are in a rank's memory, and how they come in and go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// The name of the model.
    pub name: Cow<'static, str>,
    /// The mesh of ranks.
    pub mesh: Mesh,
    /// With which numbers products are computed.
    pub precision: Precision,
    /// The size of a rank's one block of memory, in bytes.
    pub arena_bytes: usize,
    /// All buffers; buffers whose lifetimes do not overlap share memory.
    pub buffers: Cow<'static, [Buffer]>,
    /// The tensors of a batch, in the order of the model's arguments.
    pub inputs: Cow<'static, [Input]>,
    /// The trained tensors and the model's buffers, in the order in which the model makes them.
    pub parameters: Cow<'static, [Parameter]>,
    /// The optimiser's tensors, all zero at the start.
    pub states: Cow<'static, [State]>,
    /// Buffers that are filled once.
    pub constants: Cow<'static, [Constant]>,
    /// The scalars that are computed anew for each step, in the order in which scalar programs number them.
    pub scalars: Cow<'static, [RunScalar]>,
    /// Where a training step leaves the loss, a scalar that every rank holds; none in inference.
    pub loss: Option<BufferId>,
    /// Where a training step leaves the 2-norm of all gradients together, a scalar that every rank holds; none if nothing needs it.
    pub gradient_norm: Option<BufferId>,
    /// How many steps share an update, which takes the mean of their gradients; 1 if every step updates.
    pub accumulate: u64,
    /// The decay of the parameters' moving averages, the states `<parameter>.ema`; none if there are none.
    pub ema: Option<f64>,
    /// What a step does that is not finite.
    pub non_finite: NonFinite,
    /// What an evaluation leaves: the loss if there is one, then the model's further outputs.
    pub outputs: Cow<'static, [Output]>,
    /// The bytes that the collectives of one training step move, over all ranks.
    pub train_bytes: u64,
    /// The bytes that the collectives of one evaluation move, over all ranks.
    pub evaluate_bytes: u64,
}

impl Tables {
    /// What the program is for: one without a loss does not train.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.loss {
            Some(_) => Mode::Training,
            None => Mode::Inference,
        }
    }

    /// What a prediction gives: the outputs beside the loss.
    #[must_use]
    pub fn predictions(&self) -> &[Output] {
        &self.outputs[usize::from(self.loss.is_some())..]
    }

    /// The bytes that the collectives of [`Program::measured`] move, over all ranks.
    #[must_use]
    pub const fn measured_bytes(&self) -> u64 {
        match self.mode() {
            Mode::Training => self.train_bytes,
            Mode::Inference => self.evaluate_bytes,
        }
    }
}

/// A stretch of a rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it begins, in bytes from the start of the arena; a multiple of 64.
    pub offset: usize,
    /// The number of elements.
    pub n_elements: usize,
    /// The type of the elements.
    pub dtype: DType,
}

/// A tensor of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The name of the model's argument.
    pub name: Cow<'static, str>,
    /// The type of the elements.
    pub dtype: DType,
    /// Shape and tiling.
    pub tile: Tile,
    /// Where each rank's part goes.
    pub buffer: BufferId,
    /// For class labels, the number of classes: values must be in `0..n_classes`.
    pub n_classes: Option<usize>,
    /// Whether predictions are computed of it; others, such as labels, serve the loss alone.
    pub is_queried: bool,
}

/// A trained tensor, or a buffer: a tensor that the model itself keeps from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, a path of calls and loop rounds: `dense.2.w`.
    pub name: Cow<'static, str>,
    /// Shape and tiling.
    pub tile: Tile,
    /// Where each rank's part stays.
    pub buffer: BufferId,
    /// How it is filled at the start.
    pub init: Init,
    /// Whether the optimiser trains it; if not, it is a buffer that the model itself keeps.
    pub is_trained: bool,
}

/// A tensor of the optimiser that belongs to a parameter, of the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The parameter's name and the state's: `dense.2.w.momentum`.
    pub name: Cow<'static, str>,
    /// Shape and tiling.
    pub tile: Tile,
    /// Where each rank's part stays.
    pub buffer: BufferId,
}

/// A vector `0, 1, 2, ..` of which each rank holds the part of its tile, as `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Shape, of one dim, and tiling.
    pub tile: Tile,
    /// Where each rank's part stays.
    pub buffer: BufferId,
}

/// A result that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The name, `loss` for the loss.
    pub name: Cow<'static, str>,
    /// The type of the elements.
    pub dtype: DType,
    /// Shape and tiling.
    pub tile: Tile,
    /// Where each rank's part lies after the last step.
    pub buffer: BufferId,
    /// What the rows of a batch are to it.
    pub rows: Rows,
}

/// What the rows of a batch are to an output: whether a row's part of it can be told from the others'. A row is an index of dim 0, which the inputs of a
/// prediction share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// It does not depend on the batch.
    Fixed,
    /// Each row has a part of its own, computed of that row alone: an equal share of this dim, in the order of the rows.
    Own {
        /// The dim.
        dim: usize,
    },
    /// It is computed of several rows together, no dim of it is known to be theirs, or there are no rows that the inputs share.
    Mixed,
}

/// How a parameter is filled at the start. Element `i` of the whole tensor is a function of the seed, the parameter's number and `i`
/// alone, so that the values do not depend on the tiling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element is this number.
    Constant(f64),
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Normally distributed, without values more than two standard deviations from the mean.
    TruncatedNormal {
        /// The mean.
        mean: f64,
        /// The standard deviation of the distribution before it is cut.
        std: f64,
    },
    /// Uniformly distributed over `low..high`.
    Uniform {
        /// The least value.
        low: f64,
        /// The bound above all values.
        high: f64,
    },
}

/// A scalar that is known only when a step runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunScalar {
    /// The learning rate.
    LearningRate,
    /// `1 - base^t` at the `t`-th update, counted from 1: Adam's bias correction.
    OneMinusPower {
        /// The base, one of Adam's betas.
        base: f64,
    },
    /// The number of the update, counted from 1.
    UpdateNumber,
    /// A number from 0 to below 1, of 24 bits, that looks random: a function of the seed and the step, [`RunScalar::noise`].
    Noise,
    /// 1 in a step that updates the parameters, the last of those that share an update; 0 in the others.
    IsUpdate,
    /// What the loss is multiplied by before gradients are taken.
    LossScale,
}

impl RunScalar {
    /// The value of [`RunScalar::Noise`].
    #[must_use]
    pub const fn noise(seed: u64, step: u64) -> f32 {
        (mixed(mixed(seed) ^ step) >> 40) as f32 / (1_u32 << 24) as f32
    }
}

/// What is known of a plan once it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the model is compiled to do.
    pub mode: Mode,
    /// The number of ranks.
    pub n_gpus: usize,
    /// The strategy that was asked for.
    pub strategy: &'static str,
    /// Whether no plan is better by the objective, and that is proved.
    pub is_optimal: bool,
    /// The bytes that one training step, or in inference one prediction, moves, over all ranks.
    pub bytes_total: u64,
    /// The memory that each rank needs, in bytes.
    pub peak_memory_bytes_per_gpu: u64,
    /// A table for people.
    pub text: &'static str,
    /// The model as text, by which it can be compiled again: for another number of ranks, or to explain the plan.
    pub recipe: &'static str,
}
