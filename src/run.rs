//! A training run, from its configuration to its metrics and checkpoints.

mod batches;
mod checkpoint_manager;
mod columns;
mod config;
mod evaluation;
mod event;
mod fit;
mod folder;
mod identity;
mod metric;
mod number;
mod numberings;
mod output;
mod plot;
mod progress;
mod record;
mod schedule;
mod split;
mod tensorboard;
mod trace;

pub(crate) use batches::{batch_size, first, loader};
pub(crate) use checkpoint_manager::{best, folder as checkpoints};
pub(crate) use columns::match_columns;
pub use config::{DataOptions, Resume, TrainConfig};
pub(crate) use config::{LOSS, one_entry, setting, settings::settings};
pub use evaluation::DatasetEvaluation;
pub(crate) use evaluation::{EvaluatedModel, evaluate_dataset};
pub use event::{End, Event, Flow, Start, Summary};
pub(crate) use fit::{FitError, fit};
pub use metric::{HeldOutBatch, Metric};
pub(crate) use number::Decimal;
pub(crate) use numberings::Numberings;
pub(crate) use output::config_file;
pub use record::{EvaluationRecord, StepRecord};
pub use schedule::{Curve, Schedule};
pub use split::Split;
pub(crate) use trace::write as write_trace;

#[cfg(test)]
pub(crate) use record::tests as record_tests;
