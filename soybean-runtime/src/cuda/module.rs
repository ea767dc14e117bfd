//! Compiled kernels on a GPU.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{
    ffi::{CString, c_void},
    sync::Arc,
};

use cudarc::driver::{result, sys};

use super::{gpu::Gpu, stream::Stream};
use crate::{Error, ErrorKind};

/// The kernels of a model on one GPU.
pub(crate) struct Module {
    gpu: Arc<Gpu>,
    raw: sys::CUmodule,
}

// SAFETY: modules may be used from any thread that makes their context current, which every call here does.
unsafe impl Send for Module {}
// SAFETY: as above; after loading it is only read.
unsafe impl Sync for Module {}

/// One kernel of a module, which must outlive it.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: as for modules.
unsafe impl Send for Function {}

/// How many threads run a function, and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    /// The blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// The threads of a block.
    pub(crate) block: u32,
    /// The dynamic shared memory of a block, in bytes.
    pub(crate) shared_bytes: u32,
}

/// Dynamic shared memory that every function may have without being asked for more.
const USUAL_SHARED_BYTES: u32 = 48 * 1024;

impl Module {
    /// Loads machine code for this GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>, cubin: &[u8]) -> Result<Self, Error> {
        gpu.bind()?;
        // SAFETY: the image is whole; the driver copies what it needs.
        let raw = unsafe { result::module::load_data(cubin.as_ptr().cast()) }
            .map_err(|error| gpu.fault("loading the kernels", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// The function with this name, made ready for its shared memory.
    pub(crate) fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, Error> {
        self.gpu.bind()?;
        let symbol = CString::new(name).map_err(|_| {
            Error::new(ErrorKind::Program, format!("expected a function's name, found {name:?}"))
        })?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.raw, symbol) }
            .map_err(|error| self.gpu.fault(&format!("finding kernel `{name}`"), error))?;
        if shared_bytes > USUAL_SHARED_BYTES {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let n_bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            // SAFETY: the function has just been found.
            unsafe { result::function::set_function_attribute(function, which, n_bytes) }
                .map_err(|error| self.gpu.fault(&format!("shared memory of `{name}`"), error))?;
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: loaded in `new`. After a fatal error the driver refuses, and there is nothing left to unload.
            let _refused = unsafe { result::module::unload(self.raw) };
        }
    }
}

impl Function {
    /// Runs the function when the stream comes to it.
    ///
    /// # Safety
    /// The function's module is loaded on the stream's GPU; the arguments are those that the function takes, and what they point to stays until it has run.
    pub(crate) unsafe fn launch(
        self,
        stream: &Stream,
        threads: Threads,
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
        .map_err(|error| stream.gpu.fault("starting a kernel", error))
    }
}
