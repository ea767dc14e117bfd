//! The virtual devices as cudarc sees them. Each test runs in a process of its own.

#![expect(unsafe_code, reason = "CUDA is a C library")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod child;
mod collectives;
mod convolution;
mod convolutions;
mod device;
mod driver;
mod faults;
mod processes;
mod product;
mod products;
