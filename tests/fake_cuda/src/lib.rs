//! CUDA on virtual devices: what tests of the CUDA backend run on.
//!
//! [`compile`] makes a shared library of the text that NVRTC would compile, and [`Module`] runs its kernels on the CPU. The library itself, loaded in place of
//! CUDA's as [`install`] puts it there, is a driver, NVRTC, cuBLASLt, cuDNN and NCCL for as many devices as one likes. The README says what can be set.

mod capture;
mod compile;
mod control;
mod cublaslt;
mod cudnn;
mod driver;
mod element_type;
mod ffi;
mod handles;
mod install;
mod memory;
mod module;
mod nccl;
mod nvrtc;
mod random;
mod schedule;
mod settings;
mod state;
mod status;
mod work;

pub use compile::{Sanitize, compile, compile_in, has_compiler, sanitizer_library};
pub use install::{install, install_without};
pub use module::{Module, Order};
