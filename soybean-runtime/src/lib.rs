//! Runs compiled models: devices, kernels, communicators and the trainer.
//!
//! A [`Model`] describes its memory and kernels with types of `soybean-plan`, and makes calls on a
//! [`Rank`]. A [`Trainer`] runs all ranks of its mesh. A [`Predictor`] runs the ranks of a model of
//! mode inference. Nothing here knows graphs, operators or gradients.

mod abort;
mod arena;
mod backend;
#[cfg(any(feature = "cuda", feature = "mpi"))]
mod backoff;
mod barrier;
mod check;
mod config;
mod counters;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod devices;
mod dispatch;
mod evaluation;
mod host_io;
mod initial_values;
mod inspection;
#[cfg(feature = "cuda")]
mod launch_summary;
mod memory_beside_plan;
mod model;
mod movement;
mod prediction;
mod predictor;
mod processes;
mod profile;
mod rank;
mod ranks;
mod remote_exchange;
mod shared_memory;
mod state;
mod tile_overlap;
mod trace;
mod trainer;
mod transport;
mod worker;

pub use config::{Config, Device};
#[cfg(feature = "cuda")]
pub use cuda::{MachineCode, QueuedTask, compile_kernels, queued_tasks};
pub use devices::{Devices, devices};
pub use evaluation::Evaluation;
pub use inspection::NonFiniteTensor;
#[cfg(feature = "cuda")]
pub use launch_summary::{LaunchRow, LaunchSummary};
pub use memory_beside_plan::MemoryBesidePlan;
pub use model::Model;
pub use predictor::Predictor;
pub use processes::Process;
pub use profile::Profile;
pub use rank::Rank;
pub use soybean_checkpoint::{self as checkpoint, Counters, weights};
pub use soybean_data as data;
pub use soybean_plan::{Array, Error, ErrorKind, KernelCategory, View};
pub use trace::{Trace, TraceEvent};
pub use trainer::Trainer;

/// Returns whether this crate was optimized. If not, its kernels on the CPU are many times slower.
#[must_use]
pub fn is_optimized() -> bool {
    env!("SOYBEAN_RUNTIME_OPT_LEVEL") != "0"
}
