//! The program representation that the compiler and the runtime share.
//!
//! A [`Program`] describes what every rank of a [`Mesh`] does in one training step or one
//! prediction: kernels over local buffers, collectives along axes of the mesh, and the transfers of
//! the user's tensors. All descriptors can be written as constants, so generated code keeps them in
//! statics. This crate decides nothing and has no dependencies.

pub mod bf16;
mod bucket;
mod category;
mod cluster;
mod collective;
mod combine;
mod const_expression;
mod descriptor;
mod digits;
mod entry;
mod error;
mod executable;
pub mod f16;
mod file;
mod fingerprint;
mod halo;
mod host;
mod init;
mod kept_gradients;
mod kernel;
mod lanes;
mod liveness;
mod markup;
mod mesh;
mod mode;
mod nearest;
mod non_finite;
mod notation;
mod number_range;
mod pattern;
mod precision;
mod printable;
mod program;
pub mod random;
mod run_scalar;
mod scalar;
mod schedule;
mod separate_weights;
mod shape;
mod size;
mod step_sum;
mod thread_owner;
mod tile;
mod tiling;

pub use bucket::Bucket;
pub use category::KernelCategory;
pub use cluster::{
    Cluster, CollectiveCost, Device, KernelWork, Level, MeasuredCollective, MeasuredKernel,
    Measurements, Topology, TopologyError, WorkKind, measured_names,
};
pub use collective::{Collective, CollectiveKind};
pub use combine::Combine;
pub use const_expression::ConstExpression;
pub use entry::{Entry, MAX_TRAINED_ENTRIES, TrainingStep};
pub use error::{Error, ErrorKind, caught, panic_message};
pub use executable::Executable;
pub use file::{open_file, read_file, read_text};
pub use fingerprint::fingerprint;
pub use halo::Halo;
pub use host::{Array, View};
pub use init::Init;
// The list of kernels determines these names.
pub use kernel::*;
pub use lanes::{StepNeeds, lane, lane_spans};
pub use liveness::{BUFFER_ALIGNMENT, first_gap, overlaps, without};
pub use markup::{json_string, xml_text};
pub use mesh::{AxisSet, DigitOrder, MAX_AXES, Mesh};
pub use mode::Mode;
pub use nearest::{NearName, nearest_names};
pub use non_finite::NonFinite;
pub use notation::IndexNotation;
pub use number_range::NumberRange;
pub use pattern::Pattern;
pub use precision::Precision;
pub use printable::{listed, printable};
pub use program::{
    Buffer, BufferId, Constant, Input, NextValue, Output, Parameter, Plan, Program, Rows, State,
    Step, Tables,
};
pub use run_scalar::RunScalar;
pub use scalar::{
    Binary, Instruction, Register, ScalarProgram, Unary, floor_divide, floor_of_quotient, noise,
    remainder, remainder_by_floor,
};
pub use schedule::{Access, Lane, Schedule, Wait};
pub use separate_weights::separate_weights;
pub use shape::{DType, MAX_RANK, Shape, Strides};
pub use size::{parse_bytes, readable_bytes};
pub use step_sum::{COUNT_SUM, GRADIENT_SUM};
pub use thread_owner::ThreadOwner;
pub use tile::{
    Place, Run, Tile, carried_axes, carries_split, may_split, splits_into_blocks, splitting_sets,
};
pub use tiling::{Placement, Tiling};
