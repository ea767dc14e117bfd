//! A training run, from its choices to its metrics and checkpoints.

mod batches;
mod config;
mod evaluation;
mod event;
mod events;
mod files;
mod fit;
mod folder;
mod keeper;
mod metric;
mod plot;
mod record;
mod schedule;
mod split;
mod standing;
mod trace;

pub(crate) use batches::{batch_size, first, loader};
pub use config::{DataOptions, Resume, TrainConfig};
pub(crate) use config::{LOSS, setting, settings::settings};
pub use event::{End, Event, Flow, Start, Summary};
pub(crate) use fit::{Broken, fit};
pub(crate) use keeper::folder as checkpoints;
pub use metric::{HeldOutBatch, Metric};
pub use record::{EvaluationRecord, StepRecord};
pub use schedule::{Curve, Schedule};
pub use split::Split;
pub(crate) use trace::write as write_trace;

#[cfg(test)]
pub(crate) use record::tests as record_tests;
