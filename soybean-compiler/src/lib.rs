//! Soybean's compiler: from a model's forward computation to a program for N ranks.
//!
//! A [`Builder`] makes a [`graph`]. The passes in [`compile()`] differentiate, simplify and fuse
//! it, search a tiling that minimizes the bytes moved between ranks, and lower it to a
//! [`soybean_plan::Program`]. The compiler knows nothing of tokens, files, clocks or the
//! environment.

mod additions;
mod assumed_cluster;
mod batch;
mod bucket;
mod builder;
mod channels_last;
mod check;
mod compile;
mod denominator;
mod diagnostic;
mod differentiate;
mod entry;
mod fastest;
mod fuse;
pub mod graph;
mod holdings;
mod idle_gpus;
mod initializers;
mod kept_halos;
mod limit;
mod lower;
mod memory;
mod model;
mod network;
pub mod operator;
pub mod operators;
mod optimizer;
mod options;
mod order;
mod overlap;
mod padding;
mod partial_sums;
mod pass;
mod peak;
mod pin;
mod program;
mod recipe;
mod replicate;
mod report;
mod rewrite;
mod round;
pub mod scalar;
mod search;
pub mod signature;
mod simplify;
mod size_limits;
mod sparse_updates;
mod surface;
mod text;
pub mod tiling;
mod unplaced;
mod updates;
mod use_hash;
mod value;
mod verify;
mod weights;

pub use builder::{Argument, Builder, Site};
pub use channels_last::channels_last;
pub use check::MAX_GPUS;
pub use compile::{Compiled, build_network, compile, compile_observed, training_step};
pub use denominator::Quotient;
pub use diagnostic::{CallDiagnostic, CallPart, ModelDiagnostic, ModelPart};
pub use differentiate::differentiate;
pub use entry::Entry;
pub use fuse::fuse;
pub use initializers::init_names;
pub use kept_halos::{KeptHalos, Read};
pub use model::Model;
pub use network::{GradientSum, Network};
pub use optimizer::{
    Group, LEARNING_RATE, METHODS, Method, Optimizer, Rule, Setting, SettingValue, optimizer,
};
pub use options::Options;
pub use pass::{Observer, Stage};
pub use peak::{Content, Held, Peak};
pub use pin::Pin;
pub use program::{program, program_within, program_without_buckets};
pub use recipe::{Recipe, RecipeError};
pub use replicate::replicate;
pub use report::{
    LevelLoad, Parallelism, Pass, Prediction, Report, Transfer, readable_seconds, rows,
};
pub use round::round;
pub use search::best_plan;
pub use simplify::simplify;
pub use size_limits::check_extents;
pub use sparse_updates::with_sparse_updates;
pub use surface::{
    Description,
    attention::score::SCORE_INPUTS,
    custom::CustomGradient,
    function_names, method_names, operator_descriptions, operator_names, operator_samples,
    pytorch_counterpart,
    sample::{Sample, SampleArgument, SampleFunction},
};
pub use text::program_text;
pub use tiling::{
    MAX_WORK, Objective, Padding, SearchEffort, SearchRequest, Strategy, is_max_work,
};
pub use updates::add_updates;
pub use value::Value;
pub use verify::{verify, verify_program};
pub use weights::Weights;
