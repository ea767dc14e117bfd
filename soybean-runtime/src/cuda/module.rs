//! CUDA modules and their functions.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{
    ffi::{CString, c_void},
    sync::Arc,
};

use cudarc::driver::{result, sys};

use super::{capture_lock::not_capturing, gpu::Gpu, stream::Stream};
use crate::{Error, ErrorKind};

/// A loaded module with the kernels of a model.
pub(crate) struct Module {
    gpu: Arc<Gpu>,
    raw: sys::CUmodule,
}

// SAFETY: a module may be used from any thread that makes its context current, as every call here
// does.
unsafe impl Send for Module {}
// SAFETY: as above; it is not modified after loading.
unsafe impl Sync for Module {}

/// A kernel of a module. It must not outlive the module.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for modules.
unsafe impl Send for Function {}

/// Launch configuration of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchConfig {
    /// Blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// Threads per block.
    pub(crate) block: u32,
    /// Dynamic shared memory per block in bytes.
    pub(crate) shared_bytes: u32,
}

impl Module {
    /// Loads a cubin for this GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>, cubin: &[u8]) -> Result<Self, Error> {
        gpu.bind()?;
        let _no_capture = not_capturing();
        // SAFETY: the image is complete; the driver copies it.
        let raw = unsafe { result::module::load_data(cubin.as_ptr().cast()) }
            .map_err(|error| gpu.error("loading the kernels", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// Returns the function with this name, with its limit of dynamic shared memory set.
    pub(crate) fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, Error> {
        self.gpu.bind()?;
        let symbol = CString::new(name).map_err(|_| {
            Error::new(ErrorKind::Program, format!("expected a function's name, found {name:?}"))
        })?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.raw, symbol) }
            .map_err(|error| self.gpu.error(&format!("finding kernel `{name}`"), error))?;
        // Together with the function's own shared memory, it may be more than needs no attribute.
        if shared_bytes > 0 {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let n_bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function is valid.
            unsafe { result::function::set_function_attribute(function, which, n_bytes) }
                .map_err(|error| self.gpu.error(&format!("shared memory of `{name}`"), error))?;
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: loaded in `new`. After a fatal error the driver refuses, and there is nothing
            // left to unload.
            let _refused = unsafe { result::module::unload(self.raw) };
        }
    }
}

impl Function {
    /// Queues a launch of the function.
    ///
    /// # Safety
    /// The module is loaded on the stream's GPU. The arguments match the function's parameters, and
    /// the memory that they point to stays valid until the function completes.
    pub(crate) unsafe fn launch(
        self,
        stream: &Stream,
        threads: LaunchConfig,
        arguments: &[u64],
    ) -> Result<(), Error> {
        let raw = stream.raw()?;
        let place = |it: &u64| std::ptr::from_ref(it).cast_mut().cast::<c_void>();
        let mut places: Vec<*mut c_void> = arguments.iter().map(place).collect();
        let [x, y, z] = threads.grid;
        let block = (threads.block, 1, 1);
        // SAFETY: required of the caller; the driver copies the arguments.
        unsafe {
            result::launch_kernel(self.0, (x, y, z), block, threads.shared_bytes, raw, &mut places)
        }
        .map_err(|error| stream.gpu.error("starting a kernel", error))
    }
}
