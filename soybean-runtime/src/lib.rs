//! Runs compiled models: devices, kernels, communicators, the trainer and its data.
//!
//! A [`Model`] describes its memory and kernels in the words of `soybean-plan` and makes calls on a [`Rank`]; a [`Trainer`] runs all
//! ranks of its mesh, a [`Predictor`] those of a model of mode inference. Nothing here knows graphs, operators or gradients.

mod abort;
mod across;
mod arena;
mod backend;
mod barrier;
mod check;
pub mod checkpoint;
mod config;
mod counters;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
pub mod data;
mod devices;
mod ends;
mod error;
mod half;
mod host;
mod in_process;
mod init;
mod mail;
mod model;
mod movement;
mod overlap;
mod post;
mod predictor;
mod processes;
mod profile;
mod query;
mod rank;
mod ranks;
mod state;
mod tensor_file;
mod trace;
mod trainer;
pub mod weights;
mod worker;

pub use config::{Config, Device};
pub use counters::Counters;
#[cfg(feature = "cuda")]
pub use cuda::compile_kernels;
pub use devices::{Devices, devices};
pub use error::{Error, ErrorKind};
pub use host::{Array, Evaluation, View};
pub use model::Model;
pub use predictor::Predictor;
pub use processes::Process;
pub use profile::Profile;
pub use rank::Rank;
pub use soybean_plan::KernelCategory;
pub use trace::Trace;
pub use trainer::Trainer;
