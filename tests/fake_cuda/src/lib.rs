//! CUDA on virtual devices: what tests of the CUDA backend run on.
//!
//! [`compile`] makes a shared library of the text that NVRTC would compile, and [`Module`] runs its kernels on the CPU.

mod compile;
mod module;

pub use compile::{Sanitize, compile, compile_in, has_compiler, sanitizer_library};
pub use module::{Module, Order};
