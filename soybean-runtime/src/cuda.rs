//! NVIDIA GPUs as devices.
//!
//! Each GPU has a host thread, which walks through a step and queues the tasks of its ranks, on a
//! compute stream or a communication stream. Events order the streams. The trainer's thread watches
//! these threads, and then the GPUs. The second step is captured as one graph of all ranks on all
//! GPUs, and replayed from then on. With NCCL, steps are captured only if the process has one GPU.

mod attention;
mod autotune;
mod batch_slot;
mod capture_lock;
mod collective;
mod communicators;
mod compile;
mod convolution;
mod cudnn;
mod device_program;
mod device_set;
pub(crate) mod devices;
mod disk_cache;
mod epilogue;
mod fused_program;
mod generated_operations;
mod gpu;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod host_tensor;
mod interconnect;
mod joined_products;
mod kernels;
mod launch_threads;
mod launcher;
mod launches;
mod libraries;
mod library_call;
mod local_ranks;
mod matmul;
mod memory;
mod module;
mod nccl;
pub(crate) mod peers;
mod phase;
mod phase_runner;
mod product_support;
mod queue_progress;
mod rank_context;
mod ranks;
mod recorder;
mod source;
mod step_launch;
mod stream;
mod transfer;
mod unfinished;

pub use launches::{QueuedTask, queued_tasks};
#[cfg(feature = "mpi")]
pub(crate) use local_ranks::LocalRanks;
pub(crate) use ranks::CudaRanks;
pub use source::{MachineCode, compile_kernels};

/// Returns true if there is an NVIDIA driver, usable or not. Without one, a run on the CPU needs no
/// explanation.
pub(crate) fn has_driver() -> bool {
    libraries::installation().driver().is_ok()
}
