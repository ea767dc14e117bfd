//! Tests of kernels on the CPU, and of the virtual devices through cudarc. Each test of the devices
//! runs in a child process.

#![expect(unsafe_code, reason = "CUDA is a C library")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

mod child_process;
mod convolution_reference;
mod cublaslt;
mod cudnn;
mod cudnn_epilogues;
mod cudnn_graph;
mod cudnn_library;
mod driver;
mod injected_errors;
mod matmul_reference;
mod nccl;
mod nccl_processes;
mod simt;
mod test_device;
