//! A virtual device with two streams and a kernel, for tests of the driver.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg, sys,
};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys as nvrtc_sys};

pub(crate) const TEXT: &str = r#"
#ifndef SOYBEAN_ON_CPU
#define SOYBEAN_EXPORT(kernel, uses_barriers)
#endif
extern "C" __global__ void twice(float* y, const float* x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}
SOYBEAN_EXPORT(twice, 0)
extern "C" __global__ void add(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }
SOYBEAN_EXPORT(add, 0)
extern "C" __global__ void hang(float* y) {
    if (threadIdx.x == 0) __syncthreads();
    y[threadIdx.x] = 0.0f;
}
SOYBEAN_EXPORT(hang, 1)
extern "C" __global__ void beyond(float* y) { y[64] = 1.0f; }
SOYBEAN_EXPORT(beyond, 0)
"#;

pub(crate) const N: usize = 64;
pub(crate) const LAUNCH: LaunchConfig =
    LaunchConfig { grid_dim: (2, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
pub(crate) const ONE_BLOCK: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };

/// Compiles source with NVRTC. Returns the PTX or the log.
pub(crate) fn compile(text: &str, architecture: &str) -> Result<Ptx, String> {
    let text = CString::new(text).unwrap();
    let program = nvrtc::create_program(&text, Some(c"test.cu")).unwrap();
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
    // SAFETY: the program was just created.
    let compiled = unsafe { nvrtc::compile_program(program, &options) };
    // SAFETY: as above.
    let log = unsafe { nvrtc::get_program_log(program) }.unwrap();
    if compiled.is_err() {
        return Err(log.iter().map(|&byte| char::from(byte.cast_unsigned())).collect());
    }
    let mut n_bytes = 0;
    // SAFETY: the program was compiled.
    unsafe { nvrtc_sys::nvrtcGetCUBINSize(program, &raw mut n_bytes) }.result().unwrap();
    let mut cubin = vec![0_u8; n_bytes];
    // SAFETY: there is memory for as many bytes as were reported.
    unsafe { nvrtc_sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()) }.result().unwrap();
    // SAFETY: it was not destroyed before.
    unsafe { nvrtc::destroy_program(program) }.unwrap();
    Ok(Ptx::from_binary(cubin))
}

pub(crate) struct Device {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) compute: Arc<CudaStream>,
    pub(crate) communication: Arc<CudaStream>,
    pub(crate) twice: CudaFunction,
}

impl Device {
    pub(crate) fn new(number: usize) -> Self {
        let context = CudaContext::new(number).unwrap();
        // SAFETY: the tests synchronize their work explicitly.
        unsafe { context.disable_event_tracking() };
        let twice = context
            .load_module(compile(TEXT, "sm_90").unwrap())
            .unwrap()
            .load_function("twice")
            .unwrap();
        Self {
            compute: context.new_stream().unwrap(),
            communication: context.new_stream().unwrap(),
            twice,
            context,
        }
    }

    /// Allocates poisoned memory.
    pub(crate) fn block(&self, n: usize) -> CudaSlice<f32> {
        // SAFETY: nothing reads it before it is written, unless that is what a test checks.
        unsafe { self.compute.alloc(n) }.unwrap()
    }

    pub(crate) fn launch_twice(
        &self,
        y: sys::CUdeviceptr,
        x: sys::CUdeviceptr,
    ) -> Result<(), DriverError> {
        let mut builder = self.compute.launch_builder(&self.twice);
        builder.arg(&y).arg(&x);
        // SAFETY: both have 64 numbers.
        unsafe { builder.launch(LAUNCH) }.map(|_| ())
    }
}

pub(crate) fn address(block: &CudaSlice<f32>) -> sys::CUdeviceptr {
    block.device_ptr(block.stream()).0
}
