//! The commands that the trainer gives to its ranks, on any device.

use std::{ops::Range, sync::Mutex, time::Instant};

use soybean_plan::BufferId;

use crate::{
    Counters, Error, MemoryBesidePlan, Process, Profile, View, inspection::Inspection,
    state::TensorRange, trace::Span,
};

/// All ranks of a model on one kind of device.
pub(crate) trait Ranks: Send {
    /// Executes a command on all ranks, which put the results into their reports. After an error,
    /// all further calls may fail.
    fn call(&mut self, command: Command<'_>) -> Result<(), Error>;

    /// Returns one report for each rank.
    fn reports(&self) -> &[Mutex<Report>];

    /// Describes the devices of all ranks, in one line.
    fn device_line(&self) -> String;

    /// Returns the largest memory that a rank of this process has beside the plan.
    fn memory_beside_plan(&self) -> MemoryBesidePlan {
        MemoryBesidePlan::default()
    }

    /// Returns the identity of this process.
    fn process(&self) -> Process {
        Process::ONLY
    }

    /// Returns the ranks of this process.
    fn local_ranks(&self) -> Range<usize> {
        0..self.reports().len()
    }

    /// Returns true if the ranks can run inspected steps.
    fn can_inspect(&self) -> bool {
        false
    }

    /// Returns true if `flag` is true in any process. All processes call this at the same time.
    fn any(&mut self, flag: bool) -> Result<bool, Error> {
        Ok(flag)
    }

    /// Returns the bytes of all processes, in their order. All processes call this at the same time
    /// with equally many bytes.
    fn gather(&mut self, own: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(own.to_vec())
    }

    /// Reports to the other processes that this one cannot give the next command. A single process
    /// does nothing and may give another command.
    fn report_error(&mut self, _error: &Error) {}
}

/// A command to all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// Run one training step.
    Train(TrainStep<'a>),
    /// Queue this batch for the next training step.
    Queue {
        /// The number of the entry.
        #[cfg_attr(
            not(feature = "cuda"),
            expect(dead_code, reason = "threads on the CPU get the batch with its step")
        )]
        entry: usize,
        /// The tensors of the batch.
        batch: &'a [View<'a>],
    },
    /// Run the forward computation of an entry on this batch.
    Evaluate {
        /// The number of the entry.
        entry: usize,
        /// The tensors of the batch.
        batch: &'a [View<'a>],
        /// True if the ranks look for tensors that are not finite.
        is_inspected: bool,
    },
    /// Report these tensors of the state in all processes.
    Fetch(TensorRange),
    /// Report these tensors of the state in the first process, which saves them.
    Save(TensorRange),
    /// Replace these tensors of the state.
    Load {
        /// The number of the first tensor.
        first: usize,
        /// Whole tensors, in the order of the state.
        tensors: &'a [View<'a>],
    },
    /// Set all times of the profile to zero.
    ResetProfile,
}

/// The source of a training step's batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchSource<'a> {
    /// The caller provides the batch.
    Batch(&'a [View<'a>]),
    /// The batch was queued before. During the step, the next batch is queued, if there is one.
    Queued {
        /// The tensors of the batch of the next step, which is one of the first entry.
        next: Option<&'a [View<'a>]>,
    },
}

/// The parameters of one training step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainStep<'a> {
    /// The number of the entry.
    pub(crate) entry: usize,
    /// The batch.
    pub(crate) batch: BatchSource<'a>,
    /// The values that determine the run-time scalars.
    pub(crate) context: StepContext,
    /// The origin of the times in a trace, if the step is traced.
    pub(crate) trace_from: Option<Instant>,
    /// True if the ranks look for tensors that are not finite.
    pub(crate) is_inspected: bool,
}

/// The values that determine the run-time scalars of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext {
    /// The counters before the step.
    pub(crate) counters: Counters,
    /// The number of updates before it of the parameters that it trains.
    pub(crate) n_updates: u64,
    /// The learning rate.
    pub(crate) learning_rate: f32,
    /// The number of steps that share the update, if the step updates.
    pub(crate) n_shared: u64,
    /// False if an update has no batch, but the gradients of the steps before it alone.
    pub(crate) has_batch: bool,
}

/// The results of one rank, which the trainer reads.
pub(crate) struct Report {
    /// The bytes that the rank received from others.
    pub(crate) moved_bytes: u64,
    /// The bytes of its parts of the batch that the host wrote to the rank.
    pub(crate) fed_bytes: u64,
    /// The loss. Only rank 0 reports it.
    pub(crate) loss: f32,
    /// The norm of all gradients, if the model computes it. Only rank 0 reports it.
    pub(crate) gradient_norm: Option<f32>,
    /// The buffer of a parameter, a buffer or a state whose next value was not finite on this rank.
    pub(crate) non_finite_state: Option<BufferId>,
    /// The rank's parts of outputs or of the state. A part is empty if another rank reports the
    /// same elements.
    pub(crate) parts: Vec<Vec<f32>>,
    /// The times of the rank.
    pub(crate) profile: Profile,
    /// The spans of a step that was traced.
    pub(crate) spans: Vec<Span>,
    /// What was found in a step that was inspected.
    pub(crate) inspection: Inspection,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            moved_bytes: 0,
            fed_bytes: 0,
            loss: f32::NAN,
            gradient_norm: None,
            non_finite_state: None,
            parts: Vec::new(),
            profile: Profile::default(),
            spans: Vec::new(),
            inspection: Inspection::default(),
        }
    }
}
