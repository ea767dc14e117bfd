//! A training run, from its choices to its metrics and checkpoints.

mod config;
mod events;
mod files;
mod metric;
mod plot;
mod record;
mod schedule;

pub use config::{Resume, TrainConfig};
pub use metric::{HeldOutBatch, Metric};
pub use record::{EvaluationRecord, StepRecord};
pub use schedule::{Curve, Schedule};
