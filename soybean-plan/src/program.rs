//! Programs: everything that a run needs to know about a compiled model.

use std::borrow::Cow;

use crate::{
    DType, Entry, ImageLayout, Init, Kernel, KernelWork, Mesh, Mode, NonFinite, Precision,
    RunScalar, Tile, TrainingStep,
};

/// The number of a buffer in [`Tables::buffers`].
pub type BufferId = usize;

/// The work of every rank of a mesh: tables of memory, inputs and outputs, the kernels, and the
/// steps that run them.
///
/// Generated code holds the same descriptors in statics and the steps as calls. It is written from
/// this value.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Memory, inputs, parameters, outputs.
    pub tables: Tables,
    /// The descriptors of kernels and collectives, which steps refer to by number.
    pub kernels: Cow<'static, [Kernel]>,
    /// The steps of one training step of each entry: loss, gradients and updates. Empty in
    /// inference.
    pub train: Vec<Vec<Step>>,
    /// The steps of one accumulating step, which adds its gradients to those of earlier steps and
    /// updates nothing: all but the last of those that share an update. Empty if every step
    /// updates.
    pub accumulate: Vec<Step>,
    /// The steps of the forward computation of each entry: the loss and further outputs.
    pub evaluate: Vec<Vec<Step>>,
}

impl Program {
    /// Returns the steps of one training step, or in inference of one prediction by the first
    /// entry.
    #[must_use]
    pub fn measured_step(&self) -> &[Step] {
        match self.tables.mode() {
            Mode::Training => &self.train[0],
            Mode::Inference => &self.evaluate[0],
        }
    }

    /// Returns the work of a step on one rank.
    #[must_use]
    pub fn work(&self, step: &Step) -> KernelWork {
        let bytes_of = |buffers: &[BufferId]| -> u64 {
            let buffers = buffers.iter().map(|&it| self.tables.buffers[it]);
            buffers.map(|it| (it.n_elements * it.dtype.bytes()) as u64).sum()
        };
        let (kernel, written) = (&self.kernels[step.kernel], bytes_of(&step.results));
        let bytes = match kernel {
            Kernel::Communicate(_) => 2 * written,
            _ => bytes_of(&step.inputs) + written,
        };
        KernelWork::new(kernel, bytes)
    }

    /// Returns lists of steps of all entries with the numbers of the entries' calls.
    fn of_entries<'a>(&self, lists: &'a [Vec<Step>]) -> Vec<(u64, &'a [Step])> {
        let lists = self.tables.entries.iter().zip(lists);
        lists.map(|(entry, steps)| (entry.n_calls, &steps[..])).collect()
    }

    /// Returns the steps that measure the plan, each list with the number of times that it runs:
    /// a training step of each entry, or in inference a prediction by each entry. If steps share an
    /// update, the second list is that of the accumulating steps before a training step.
    #[must_use]
    pub fn measured(&self) -> Vec<(u64, &[Step])> {
        match (self.tables.mode(), self.tables.accumulate) {
            (Mode::Training, n) if n > 1 => vec![(1, &self.train[0]), (n - 1, &self.accumulate)],
            (Mode::Training, _) => self.of_entries(&self.train),
            (Mode::Inference, _) => self.of_entries(&self.evaluate),
        }
    }
}

/// One step of a program: a kernel by number, and the buffers that it reads and writes, in the
/// order that its descriptor defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the kernel in [`Program::kernels`].
    pub kernel: usize,
    /// The buffers read.
    pub inputs: Vec<BufferId>,
    /// The buffers written. Only a map, or a fusion of rows, may write buffers that it reads.
    pub results: Vec<BufferId>,
}

/// The layout of a rank's memory, and the tensors that enter and leave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    /// The name of the model.
    pub name: Cow<'static, str>,
    /// The mesh of ranks.
    pub mesh: Mesh,
    /// The precision of products.
    pub precision: Precision,
    /// The size of the one block of memory of a rank, in bytes.
    pub arena_bytes: usize,
    /// All buffers; buffers whose lifetimes do not overlap share memory.
    pub buffers: Cow<'static, [Buffer]>,
    /// The functions of the model that run by themselves, at least one.
    pub entries: Cow<'static, [Entry]>,
    /// The tensors of a batch, in the order of the model's arguments, entry by entry.
    pub inputs: Cow<'static, [Input]>,
    /// The trained tensors and the model's buffers, in the order in which the model makes them.
    pub parameters: Cow<'static, [Parameter]>,
    /// The tensors of the optimizer, all zero at the start.
    pub states: Cow<'static, [State]>,
    /// Buffers that are filled once.
    pub constants: Cow<'static, [Constant]>,
    /// The scalars that are computed for each step, in the order in which scalar programs number
    /// them.
    pub scalars: Cow<'static, [RunScalar]>,
    /// The buffer in which an accumulating step leaves the loss; none if every step updates.
    pub accumulate_loss: Option<BufferId>,
    /// The number of steps that share an update, which takes the mean of their gradients; 1 if
    /// every step updates.
    pub accumulate: u64,
    /// The decay of the moving averages of parameters, which are the states `<parameter>.ema`, if
    /// there are any.
    pub ema: Option<f64>,
    /// The reaction to training steps that are not finite.
    pub non_finite: NonFinite,
    /// The buffers of next values, which must be finite after each step that writes them.
    pub next_values: Cow<'static, [NextValue]>,
    /// The results of an evaluation: the loss if there is one, then the further outputs of the
    /// model, entry by entry.
    pub outputs: Cow<'static, [Output]>,
    /// The bytes that the collectives of one accumulating step move, over all ranks; 0 if every
    /// step updates.
    pub accumulate_bytes: u64,
}

impl Tables {
    /// Returns the tables of a program in `f32` that has no buffers, entries or tensors yet. Every
    /// step updates, and a step that is not finite stops the run.
    #[must_use]
    pub const fn new(name: &'static str, mesh: Mesh) -> Self {
        Self {
            name: Cow::Borrowed(name),
            mesh,
            precision: Precision::F32,
            arena_bytes: 0,
            buffers: Cow::Borrowed(&[]),
            entries: Cow::Borrowed(&[]),
            inputs: Cow::Borrowed(&[]),
            parameters: Cow::Borrowed(&[]),
            states: Cow::Borrowed(&[]),
            constants: Cow::Borrowed(&[]),
            scalars: Cow::Borrowed(&[]),
            accumulate_loss: None,
            accumulate: 1,
            ema: None,
            non_finite: NonFinite::Stop,
            next_values: Cow::Borrowed(&[]),
            outputs: Cow::Borrowed(&[]),
            accumulate_bytes: 0,
        }
    }

    /// Returns the mode of the program: training if there is a loss.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.loss() {
            Some(_) => Mode::Training,
            None => Mode::Inference,
        }
    }

    /// Returns the training steps of the first entry; none in inference.
    fn first(&self) -> Option<&TrainingStep> {
        self.entries.first()?.training.as_ref()
    }

    /// Returns the buffer in which a training step of the first entry leaves the loss.
    #[must_use]
    pub fn loss(&self) -> Option<BufferId> {
        Some(self.first()?.loss)
    }

    /// Returns the buffer in which a training step of the first entry leaves the norm of the
    /// gradients, if it does.
    #[must_use]
    pub fn gradient_norm(&self) -> Option<BufferId> {
        self.first()?.gradient_norm
    }

    /// Returns the bytes that a training step of the first entry moves, over all ranks.
    #[must_use]
    pub fn train_bytes(&self) -> u64 {
        self.first().map_or(0, |it| it.bytes)
    }

    /// Returns the tensors of a batch for an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn inputs_of(&self, entry: usize) -> &[Input] {
        &self.inputs[self.entries[entry].inputs.clone()]
    }

    /// Returns the results of an evaluation of an entry, the loss and its weight first if there are
    /// any.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn outputs_of(&self, entry: usize) -> &[Output] {
        &self.outputs[self.entries[entry].outputs.clone()]
    }

    /// Returns the results of a prediction by an entry: all its outputs but the loss and its
    /// weight.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn predictions(&self, entry: usize) -> &[Output] {
        &self.outputs_of(entry)[self.n_of_loss(entry)..]
    }

    /// Returns the number of results of an evaluation that come before those of a prediction.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn n_of_loss(&self, entry: usize) -> usize {
        let has_weight = self.entries[entry].has_loss_weight;
        usize::from(self.mode() == Mode::Training) + usize::from(has_weight)
    }

    /// Returns the bytes of a batch's parts over all ranks: what the host writes to them for each
    /// step, evaluation or prediction by an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn fed_bytes(&self, entry: usize) -> u64 {
        self.mesh.n_ranks() as u64 * self.fed_bytes_per_rank(entry)
    }

    /// Returns the bytes of the parts of a batch that one rank holds, with their padding. All ranks
    /// hold equally many.
    ///
    /// # Panics
    /// If there is no such entry.
    #[must_use]
    pub fn fed_bytes_per_rank(&self, entry: usize) -> u64 {
        let bytes = |input: &Input| {
            let n_elements: u64 =
                input.tile.local_shape(&self.mesh).iter().map(|it| *it as u64).product();
            n_elements * input.dtype.bytes() as u64
        };
        self.inputs_of(entry).iter().map(bytes).sum()
    }

    /// Returns the bytes that the collectives of [`Program::measured`] move, over all ranks: in all
    /// calls of all entries, together with the accumulating steps before a training step.
    #[must_use]
    pub fn measured_bytes(&self) -> u64 {
        let of_calls: u64 = self.entries.iter().map(|it| it.n_calls * it.bytes_of_call()).sum();
        of_calls + self.accumulate.saturating_sub(1) * self.accumulate_bytes
    }
}

/// A range of the memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The offset in bytes from the start of the arena; a multiple of
    /// [`BUFFER_ALIGNMENT`](crate::BUFFER_ALIGNMENT).
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
    /// The buffer of each rank's part.
    pub buffer: BufferId,
    /// The number of classes if the input is a class label: values must be in `0..n_classes`.
    pub n_classes: Option<usize>,
    /// A class label without a loss, which need not be in `0..n_classes`.
    pub ignored_label: Option<i32>,
    /// True if predictions depend on it. Other inputs, such as labels, serve only the loss.
    pub is_queried: bool,
}

/// A trained tensor, or a buffer: a tensor that the model itself keeps from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name, a path of calls and loop iterations: `dense.2.w`.
    pub name: Cow<'static, str>,
    /// Shape and tiling, with the dims in the model's order.
    pub tile: Tile,
    /// The order of dims in the buffer.
    pub layout: ImageLayout,
    /// The buffer of each rank's part.
    pub buffer: BufferId,
    /// The initial values.
    pub init: Init,
    /// True if the optimizer trains it; false for a buffer that the model itself keeps.
    pub is_trained: bool,
    /// A hash of how the model uses it, whatever its name is; 0 if it is not known. If equal layers
    /// change places in the source, they exchange their names, but not these.
    pub use_hash: u64,
}

/// A tensor of the optimizer that belongs to a parameter and has its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The name of the parameter and that of the state: `dense.2.w.momentum`.
    pub name: Cow<'static, str>,
    /// Shape and tiling, with the dims in the model's order.
    pub tile: Tile,
    /// The order of dims in the buffer.
    pub layout: ImageLayout,
    /// The buffer of each rank's part.
    pub buffer: BufferId,
}

/// A buffer in which a training step computes the next value of a parameter, a buffer of the model
/// or a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextValue {
    /// The buffer that a kernel writes: that of the tensor itself, or another one that collectives
    /// convert.
    pub buffer: BufferId,
    /// The buffer from which that kernel reads the elements before the step, in the same order, if
    /// there is one. Where an element is not finite, the one before it stays.
    pub before: Option<BufferId>,
    /// The buffer of the tensor.
    pub tensor: BufferId,
}

/// A vector `0, 1, 2, ..` as `i32`, of which each rank holds the part of its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Shape, of one dim, and tiling.
    pub tile: Tile,
    /// The buffer of each rank's part.
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
    /// The buffer of each rank's part after the last step.
    pub buffer: BufferId,
    /// The relation to the rows of a batch.
    pub rows: Rows,
}

/// The relation of an output to the rows of a batch. A row is an index of dim 0, which the inputs
/// of a prediction share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The output does not depend on the batch.
    Fixed,
    /// Each row has its own part, computed from that row alone: an equal share of this dim, in the
    /// order of the rows.
    Own {
        /// The dim.
        dim: usize,
    },
    /// The output mixes several rows, none of its dims is known to follow the rows, or the inputs
    /// share no rows.
    Mixed,
}

/// The facts about a compiled plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The mode of the model.
    pub mode: Mode,
    /// The number of ranks.
    pub n_gpus: usize,
    /// The requested strategy.
    pub strategy: &'static str,
    /// True if it is proved that no plan is better by the objective.
    pub is_optimal: bool,
    /// The bytes that one update moves over all ranks: one training step, or all the steps that
    /// share it. In inference, those of all calls of all entries.
    pub bytes_total: u64,
    /// The number of steps that share an update; 1 if every step updates, and in inference.
    pub accumulate: u64,
    /// The bytes that each step moves that only accumulates gradients, over all ranks; 0 if every
    /// step updates.
    pub accumulate_bytes: u64,
    /// The memory that each rank needs, in bytes.
    pub peak_memory_bytes_per_gpu: u64,
    /// The plan in two lines.
    pub summary: &'static str,
    /// A table for readers.
    pub text: &'static str,
    /// The model as text, from which it can be compiled again for another number of ranks, or to
    /// explain the plan.
    pub recipe: &'static str,
}
