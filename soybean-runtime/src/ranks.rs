//! What the trainer asks of its ranks, whatever device they are on.

use std::{ops::Range, sync::Mutex, time::Instant};

use crate::{Counters, Error, Process, Profile, View, state::TensorRange, trace::Span};

/// All ranks of a model on one kind of device.
pub(crate) trait Ranks: Send {
    /// Carries out an order on all ranks; their reports tell what came of it. After an error all further calls may fail.
    fn call(&mut self, command: Command<'_>) -> Result<(), Error>;

    /// One report for each rank.
    fn reports(&self) -> &[Mutex<Report>];

    /// What runs where, in one line.
    fn device_line(&self) -> String;

    /// Which of the processes of the run this is.
    fn process(&self) -> Process {
        Process::ONLY
    }

    /// The ranks of this process.
    fn local_ranks(&self) -> Range<usize> {
        0..self.reports().len()
    }

    /// Whether any process says yes; all of them ask at the same time.
    fn any(&mut self, flag: bool) -> Result<bool, Error> {
        Ok(flag)
    }

    /// This process cannot give the order that the others are about to give. Without others, the next order may be better.
    fn report_error(&mut self, _error: &Error) {}
}

/// What all ranks are told to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// One training step.
    Train(TrainStep<'a>),
    /// Take this batch for the next training step.
    Queue {
        /// The tensors of the batch.
        batch: &'a [View<'a>],
    },
    /// The forward computation over this batch.
    Evaluate {
        /// The tensors of the batch.
        batch: &'a [View<'a>],
    },
    /// Hand out these tensors of the state.
    Fetch(TensorRange),
    /// The same, for the trainer of the first process only, which saves them.
    Save(TensorRange),
    /// Take these tensors of the state.
    Load {
        /// The number of the first.
        first: usize,
        /// Whole tensors, in the order of the state.
        tensors: &'a [View<'a>],
    },
    /// Forget the profile.
    ResetProfile,
}

/// Where a training step's batch comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchSource<'a> {
    /// From the caller.
    Batch(&'a [View<'a>]),
    /// It was queued before; meanwhile the next is queued, if there is one.
    Queued {
        /// The tensors of the batch of the next step.
        next: Option<&'a [View<'a>]>,
    },
}

/// One training step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrainStep<'a> {
    /// What it trains on.
    pub(crate) batch: BatchSource<'a>,
    /// What run-time scalars follow from.
    pub(crate) context: StepContext,
    /// The moment from which the times of a trace count, if the step is to be traced.
    pub(crate) trace_from: Option<Instant>,
}

/// What the run-time scalars of a step follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepContext {
    /// How far the run has come before the step.
    pub(crate) counters: Counters,
    /// The learning rate.
    pub(crate) learning_rate: f32,
}

/// What one rank leaves for the trainer.
pub(crate) struct Report {
    /// The bytes that it received from other ranks.
    pub(crate) moved_bytes: u64,
    /// The loss; of rank 0 alone.
    pub(crate) loss: f32,
    /// The norm of all gradients, if the model computes it; of rank 0 alone.
    pub(crate) gradient_norm: Option<f32>,
    /// Its parts of outputs or of the state; empty where another rank hands out the same elements.
    pub(crate) parts: Vec<Vec<f32>>,
    /// Its time.
    pub(crate) profile: Profile,
    /// What it did when, of a step that was traced.
    pub(crate) spans: Vec<Span>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            moved_bytes: 0,
            loss: f32::NAN,
            gradient_norm: None,
            parts: Vec::new(),
            profile: Profile::default(),
            spans: Vec::new(),
        }
    }
}
