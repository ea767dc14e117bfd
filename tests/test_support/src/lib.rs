//! Tools for the tests of several crates.
//!
//! In a program that uses this crate, the allocator of [`allocations`] replaces the default one.

pub mod allocations;
pub mod linear;
