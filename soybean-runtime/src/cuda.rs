//! NVIDIA GPUs as devices.
//!
//! One thread of the host, the trainer's, drives all ranks: it goes through a step once and queues each of its tasks for every rank, on a stream for computing or one for
//! communication, with events where one waits for the other. The whole step, of all ranks on all GPUs, is captured as one graph the first time and replayed from then on.

mod compile;
mod convolution;
mod epilogue;
mod gpu;
mod libraries;
mod memory;
mod module;
mod nccl;
mod product;
mod stream;
