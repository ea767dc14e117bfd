//! Checkpoints of training runs, and weights by name.
//!
//! A checkpoint is the state of a run on disk. Another run continues from it, on any number of
//! devices. It is a folder `step-0000000123` with these files:
//!
//! - `model.safetensors`: the parameters and buffers;
//! - `optimizer.safetensors`: the tensors of the optimizer;
//! - `run.json`: everything else, with the length and the CRC-32 of each file.
//!
//! The folder gets this name when all of it is on disk, or never.
//!
//! This crate knows no trainer. It reaches the state of a run through the trait
//! [`TrainingState`].
//!
//! ```no_run
//! use soybean_checkpoint::{Checkpoints, Error, Progress, TrainingState};
//!
//! # fn run(trainer: &mut impl TrainingState) -> Result<(), Error> {
//! let mut checkpoints = Checkpoints::new("out/checkpoints", 3);
//! let progress = Progress { epoch: 2, batch: 17, seed: 7, ..Progress::default() };
//! checkpoints.save(trainer, &progress)?;
//!
//! let latest = checkpoints.latest()?;
//! for (path, why) in &latest.refused {
//!     println!("{} is refused: {why}", path.display());
//! }
//! if let Some(checkpoint) = latest.checkpoint {
//!     let progress = checkpoint.restore(trainer)?;
//!     println!("continuing with batch {} of epoch {}", progress.batch, progress.epoch);
//! }
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod checkpoints;
mod compatibility;
mod counters;
mod exchanged;
mod finite;
mod folder;
mod link;
mod locate;
mod naming;
mod restore;
mod run_file;
mod shards;
mod state;
mod tensor_file;
pub mod weights;
mod writer;

pub use checkpoint::Checkpoint;
pub use checkpoints::{Checkpoints, Latest, Progress};
pub use counters::Counters;
#[doc(hidden)]
pub use folder::{create as create_folder, sync_folder};
#[doc(hidden)]
pub use naming::{BEST, CHECKPOINTS};
pub use soybean_plan::{Array, Error, ErrorKind};
pub use state::{StateSpec, TensorSpec, TrainingState};
