//! CUDA C for the kernels of a program: descriptors in, text and launches out.
//!
//! Shapes and strides are constants in the text. The same text is compiled for GPUs and, in tests, for the CPU. Nothing here knows drivers, devices or
//! libraries.

mod attention;
mod concatenation;
mod contraction;
mod convolution;
mod embedding;
mod formula;
mod generate;
mod map;
pub mod movement;
mod padding;
mod permutation;
mod pooling;
mod prelude;
mod product;
mod reduction;
mod space;
mod text;
mod units;

pub use generate::{Address, Call, Generated, Launch, Operation, generate};
pub use prelude::prelude;
