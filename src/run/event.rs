//! What a run tells while it goes on, and what came of it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{EvaluationRecord, StepRecord};

/// What a run tells the one who watches it; its text is a line about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It begins, or goes on.
    Start(&'a Start),
    /// Something that its user should know.
    Note(&'a str),
    /// A training step was made.
    Step(&'a StepRecord),
    /// An evaluation is under way.
    Evaluating {
        /// The batches that were evaluated.
        n_done: usize,
        /// All of them.
        n_batches: usize,
    },
    /// An evaluation was made.
    Evaluation(&'a EvaluationRecord),
    /// A checkpoint is on the disk.
    Checkpoint(&'a Path),
}

/// The run that begins, or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The steps that were made before.
    pub n_done: u64,
    /// The steps of the whole run.
    pub n_steps: u64,
    /// The steps of an epoch.
    pub n_batches: u64,
    /// The epochs of the whole run, of which the last may be a part.
    pub n_epochs: u64,
    /// The samples of a step.
    pub batch_rows: usize,
    /// The samples of the training data.
    pub n_train: usize,
    /// The samples of the held-out data.
    pub n_held_out: usize,
    /// The checkpoint at which it goes on.
    pub resumed: Option<PathBuf>,
}

/// What the one who watches a run wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It shall go on.
    Continue,
    /// It shall write a checkpoint and end, after the step that is under way.
    Stop,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Why it ended.
    pub end: End,
    /// The steps that were made, in this run and in those that it goes on.
    pub n_steps: u64,
    /// The updates that were left out, because a number was not finite.
    pub n_skipped: u64,
    /// The last evaluation of this run.
    pub last: Option<EvaluationRecord>,
    /// The best value of what is watched: the held-out loss or a metric.
    pub best: Option<f64>,
    /// The step behind which it was found.
    pub best_step: Option<u64>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The checkpoint with the best value.
    pub best_checkpoint: Option<PathBuf>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps were made.
    Finished,
    /// The evaluations got no better.
    NoBetter,
    /// It was told to stop.
    Stopped,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(start) => write!(f, "{start}"),
            Self::Note(note) => f.write_str(note),
            Self::Step(it) => {
                write!(f, "epoch {}  step {}  loss {:.4}", it.epoch, it.step, it.loss)
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
                write!(f, "\ngoing on after step {n_done} of {n_steps}, from {}", path.display())
            }
            None => Ok(()),
        }
    }
}

/// The losses, the metrics and the speed.
impl fmt::Display for EvaluationRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}  held-out loss {:.4}", self.train_loss, self.held_out_loss)?;
        for (name, value) in &self.metrics {
            write!(f, "  {name} {value:.4}")?;
        }
        write!(f, "  {:.0} samples/s", self.samples_per_second)
    }
}
