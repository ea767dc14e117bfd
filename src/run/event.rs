//! The events of a run, and its summary.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Decimal, EvaluationRecord, StepRecord};

/// An event of a run, sent to its observer. Its text is one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The run starts or resumes.
    Start(&'a Start),
    /// A note for the user.
    Note(&'a str),
    /// A training step was completed.
    Step(&'a StepRecord),
    /// An evaluation is in progress.
    Evaluating {
        /// The evaluated batches.
        n_done: usize,
        /// All batches.
        n_batches: usize,
    },
    /// An evaluation was completed.
    Evaluation(&'a EvaluationRecord),
    /// A checkpoint was written.
    Checkpoint(&'a Path),
}

/// A run at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Steps completed by earlier runs.
    pub n_done: u64,
    /// Steps of the whole run.
    pub n_steps: u64,
    /// Steps of an epoch.
    pub n_batches: u64,
    /// Epochs of the whole run; the last may be partial.
    pub n_epochs: u64,
    /// Samples in a step.
    pub batch_rows: usize,
    /// Samples of the training data.
    pub n_train: usize,
    /// Samples of the held-out data.
    pub n_held_out: usize,
    /// The checkpoint from which the run resumes.
    pub resumed: Option<PathBuf>,
}

/// The reply of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue the run.
    Continue,
    /// Write a checkpoint and end the run after the current step.
    Stop,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The reason for the end.
    pub end: End,
    /// Completed steps, including those of the runs that it resumed.
    pub n_steps: u64,
    /// Updates that were skipped because a number was not finite.
    pub n_skipped: u64,
    /// The last evaluation of this run.
    pub last: Option<EvaluationRecord>,
    /// The best value of the watched metric.
    pub best: Option<f64>,
    /// The step of the best value.
    pub best_step: Option<u64>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The checkpoint with the best value.
    pub best_checkpoint: Option<PathBuf>,
}

/// The reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps were completed.
    Finished,
    /// The evaluations did not improve any more.
    NoBetter,
    /// An observer stopped it.
    Stopped,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(start) => write!(f, "{start}"),
            Self::Note(note) => f.write_str(note),
            Self::Step(it) => {
                let loss = Decimal(it.loss.into());
                write!(f, "epoch {}  step {}  loss {loss}", it.epoch, it.step)
            }
            Self::Evaluating { n_done, n_batches } => {
                write!(f, "evaluation: {n_done} of {n_batches} batches")
            }
            Self::Evaluation(record) => {
                write!(f, "epoch {}  step {}  {record}", record.epoch, record.step)
            }
            Self::Checkpoint(path) => write!(f, "checkpoint {}", path.display()),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_done, n_steps, batch_rows, n_train, n_held_out, .. } = self;
        write!(
            f,
            "{n_train} training and {n_held_out} held-out samples in batches of {batch_rows}"
        )?;
        match &self.resumed {
            Some(path) => {
                write!(f, "\nresuming after step {n_done} of {n_steps}, from {}", path.display())
            }
            None => Ok(()),
        }
    }
}

/// The losses, the metrics and the speed.
impl fmt::Display for EvaluationRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (train, held_out) = (Decimal(self.train_loss), Decimal(self.held_out_loss));
        write!(f, "loss {train}  held-out loss {held_out}")?;
        for (name, value) in &self.metrics {
            write!(f, "  {name} {}", Decimal(*value))?;
        }
        write!(f, "  {:.0} samples/s", self.samples_per_second)
    }
}
