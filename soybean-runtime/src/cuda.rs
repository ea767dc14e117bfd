//! NVIDIA GPUs as devices.
//!
//! One thread of the host, the trainer's, drives all ranks: it goes through a step once and queues each of its tasks for every rank, on a stream for computing or one for
//! communication, with events where one waits for the other. The whole step, of all ranks on all GPUs, is captured as one graph the first time and replayed from then on, unless NCCL takes part.

mod cliques;
mod collective;
mod compile;
mod connection;
mod convolution;
pub(crate) mod devices;
mod epilogue;
mod gpu;
mod here;
mod kit;
mod libraries;
mod machine;
mod memory;
mod module;
mod nccl;
pub(crate) mod others;
mod phase;
mod place;
mod product;
mod ranks;
mod slot;
mod stream;
mod tape;
mod text;
mod transfer;
#[cfg(test)]
mod virtual_gpus;

#[cfg(feature = "mpi")]
pub(crate) use here::Here;
pub(crate) use ranks::CudaRanks;
pub use text::compile_kernels;

/// Whether there is a driver for GPUs, usable or not; elsewhere nobody expects that programs run on them.
pub(crate) fn has_driver() -> bool {
    libraries::find().driver().is_ok()
}
