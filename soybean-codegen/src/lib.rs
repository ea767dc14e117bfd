//! CUDA C for the kernels of a program: maps descriptors to source text and launches.
//!
//! Shapes and strides are constants in the text. GPUs and, in tests, CPUs run the same text. Steps
//! along the same rows can be fused into one kernel before that. This crate knows no drivers,
//! devices or libraries.

mod attention;
mod concatenation;
mod contraction;
mod convolution;
mod custom;
mod embedding;
mod formula;
mod fuse_rows;
mod generate;
mod indexing;
mod map;
pub mod movement;
mod padding;
mod permutation;
mod pooling;
mod prelude;
mod product;
mod ranking;
mod reduction;
mod row_fusion;
mod space;
mod text;
mod units;

pub use fuse_rows::fuse_rows;
pub use generate::{Address, Call, Generated, Launch, Operation, generate};
pub use prelude::prelude;
