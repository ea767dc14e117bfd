//! Tools for tests of several crates.
//!
//! A program that links this crate allocates through [`allocations`], which counts.

pub mod allocations;
pub mod linear;
