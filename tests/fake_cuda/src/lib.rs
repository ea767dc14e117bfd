//! Virtual CUDA devices for tests of the CUDA backend.
//!
//! [`compile()`] builds a shared library from the source that NVRTC would compile, and [`Module`]
//! runs its kernels on the CPU. The library itself, loaded in place of CUDA's libraries after
//! [`install()`], implements the driver, NVRTC, cuBLASLt, cuDNN and NCCL for any number of devices.
//! The README lists the settings.

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
mod launch_queue;
mod memory;
mod module;
mod nccl;
mod nvrtc;
mod random;
mod schedule;
mod settings;
mod state;
mod status;
pub mod virtual_gpus;
mod work;

pub use compile::{Sanitize, compile, compile_in, has_compiler, sanitizer_library};
pub use install::{install, install_development_names, install_without};
pub use module::{Module, Order};
