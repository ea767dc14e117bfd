//! Soybean's compiler: from a model's forward computation to a program for N ranks.
//!
//! The line is short: a [`Builder`] makes a [`graph`], which is differentiated, simplified and fused, tiled by a search that minimises the bytes
//! moved between ranks, and lowered to a [`soybean_plan::Program`]. It knows nothing of tokens, files, clocks or the environment.

mod batch;
mod builder;
mod compile;
mod fault;
mod fuse;
pub mod gradient;
pub mod graph;
mod holdings;
mod inference;
mod initializers;
mod limit;
mod lower;
mod memory;
mod network;
pub mod operator;
pub mod operators;
mod optimizer;
mod overlap;
mod peak;
mod pin;
mod precision;
mod recipe;
mod report;
pub mod scalar;
mod schedule;
mod share;
pub mod signature;
mod simplify;
mod surface;
mod text;
pub mod tiling;
mod updates;
mod value;
mod verify;

pub use builder::{Argument, Builder, Site};
pub use compile::{Compiled, MAX_GPUS, Options, best_plan, compile};
pub use fault::{At, Fault, ModelFault, Place};
pub use initializers::init_names;
pub use lower::{lower, lower_within};
pub use network::Network;
pub use optimizer::{Optimizer, Rule, optimizer};
pub use peak::{Content, Held, Peak};
pub use pin::Pin;
pub use recipe::{Recipe, RecipeFault};
pub use report::{
    LevelLoad, Parallelism, Pass, Prediction, Report, Transfer, readable_bytes, readable_seconds,
    rows,
};
pub use surface::{
    Description, function_names, method_names, operator_descriptions, operator_names,
    operator_samples,
    sample::{Sample, SampleArgument},
};
pub use text::program_text;
pub use tiling::{Objective, Request, Strategy};
pub use value::Value;
pub use verify::{verify, verify_program};
