//! CUDA C for the kernels of a program: maps descriptors to source text and launches.
//!
//! Shapes and strides are constants in the text. GPUs and, in tests, CPUs run the same text. Before
//! that, attention can take over permutations of heads and save what its gradients need, and steps
//! along the same rows can be fused into one kernel. This crate knows no drivers, devices or
//! libraries.

mod attention;
mod concatenation;
mod contraction;
mod convolution;
mod custom;
mod embedding;
mod embedding_update;
mod fold_permutations;
mod formula;
mod fuse_rows;
mod generate;
mod indexing;
mod map;
mod memory;
pub mod movement;
mod padding;
mod permutation;
mod pooling;
mod prelude;
mod product;
#[cfg(test)]
mod random_steps;
mod ranking;
mod reduction;
mod row_fusion;
mod save_logarithms;
mod space;
mod text;
mod units;

pub use convolution::{generate_convolution_with_bias, has_few_channels_filter};
pub use embedding_update::generate_checked_embedding_update;
pub use fold_permutations::fold_permutations;
pub use fuse_rows::fuse_rows;
pub use generate::{
    Address, Call, Generated, Launch, Operation, generate, generate_variant, n_variants,
};
pub use map::{CheckedResult, generate_checked_map};
pub use prelude::prelude;
pub use save_logarithms::save_logarithms;
