//! Loaded kernel libraries, whose kernels run on the CPU.

#![expect(unsafe_code, reason = "kernels are C functions in a shared library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

/// Order in which the threads of a block run between barriers, and the blocks of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending.
    Forward,
    /// Descending.
    Reverse,
    /// Another random order after each barrier, from this seed.
    Random(u64),
}

/// A loaded library of kernels.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
    launch: Launch,
    static_shared: unsafe extern "C" fn(*const KernelDescriptor) -> usize,
    // Last, so that it is dropped after everything that points into it.
    _library: Library,
}

type Launch = unsafe extern "C" fn(
    *const KernelDescriptor,
    *const c_uint,
    *const c_uint,
    c_uint,
    *mut *mut c_void,
    c_int,
    u64,
) -> *const c_char;

/// `SimtKernel` of the launcher.
#[derive(Debug)]
#[repr(C)]
struct KernelDescriptor {
    name: *const c_char,
    function: *const c_void,
    call: *const c_void,
    arguments: c_uint,
    uses_barriers: c_int,
    shared_end: *const c_void,
}

#[derive(Debug)]
struct Kernel {
    name: String,
    arguments: usize,
    descriptor: *const KernelDescriptor,
}

// SAFETY: a descriptor is constant and lives as long as the library.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Lock of the launcher, which keeps its threads in static variables. A library is loaded once,
/// however often it is requested.
static LAUNCHING: Mutex<()> = Mutex::new(());

/// Maximum number of threads per block.
const MAX_THREADS: u64 = 1024;

impl Module {
    /// Loads the output of [`crate::compile()`].
    ///
    /// # Errors
    ///
    /// If the file is not such a library, or the process lacks the sanitizers that it was compiled
    /// for.
    pub fn load(path: &Path) -> Result<Self, String> {
        let load_error = |error: libloading::Error| format!("{}: {error}", path.display());
        // SAFETY: loading runs the constructors that fill the table of kernels, and nothing else.
        let library = unsafe { Library::new(path) }.map_err(load_error)?;
        // SAFETY: the launcher declares this type.
        let count = *unsafe { library.get::<unsafe extern "C" fn() -> c_uint>(b"simt_kernels") }
            .map_err(load_error)?;
        // SAFETY: as above.
        let kernel_at = *unsafe {
            library
                .get::<unsafe extern "C" fn(c_uint) -> *const KernelDescriptor>(b"simt_kernel_at")
        }
        .map_err(load_error)?;
        // SAFETY: as above.
        let launch = *unsafe { library.get::<Launch>(b"simt_launch") }.map_err(load_error)?;
        // SAFETY: as above.
        let static_shared = *unsafe { library.get(b"simt_static_shared") }.map_err(load_error)?;
        // SAFETY: the function only subtracts two addresses.
        let count = unsafe { count() };
        let kernels = (0..count).map(|number| {
            // SAFETY: `number` is below the count.
            let descriptor = unsafe { kernel_at(number) };
            // SAFETY: the table has `count` descriptors in static memory of the library.
            let read = unsafe { &*descriptor };
            // SAFETY: the name is a string literal.
            let name = unsafe { CStr::from_ptr(read.name) };
            Kernel {
                name: name.to_string_lossy().into_owned(),
                arguments: read.arguments as usize,
                descriptor,
            }
        });
        Ok(Self { kernels: kernels.collect(), launch, static_shared, _library: library })
    }

    /// Returns the names of the kernels in source order.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Returns the number of a kernel's arguments, if the kernel exists.
    #[must_use]
    pub fn n_arguments(&self, function: &str) -> Option<usize> {
        Some(self.kernel(function)?.arguments)
    }

    /// Returns the bytes of a kernel's static shared memory, including padding.
    #[must_use]
    pub fn static_shared_bytes(&self, function: &str) -> Option<usize> {
        let descriptor = self.kernel(function)?.descriptor;
        let _guard = LAUNCHING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the descriptor belongs to this library, and the lock protects the launcher's
        // variables.
        Some(unsafe { (self.static_shared)(descriptor) })
    }

    /// Runs a kernel on a grid and waits for it. The arguments are pointers.
    ///
    /// # Errors
    ///
    /// If the kernel does not exist, the launch exceeds the limits of a GPU, or the kernel would
    /// hang or trap on a GPU. The message names the source line.
    ///
    /// # Safety
    ///
    /// The kernel must stay within the memory that its arguments point to, and nothing else may use
    /// that memory meanwhile.
    pub unsafe fn launch(
        &self,
        function: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: &[*mut c_void],
        order: Order,
    ) -> Result<(), String> {
        let kernel =
            self.kernel(function).ok_or_else(|| format!("no kernel is named {function}"))?;
        let threads: u64 = block.iter().map(|&extent| u64::from(extent)).product();
        if grid.contains(&0) || threads == 0 || threads > MAX_THREADS {
            return Err(format!(
                "kernel {function}: a grid of {grid:?} blocks of {block:?} threads cannot be launched"
            ));
        }
        if arguments.len() != kernel.arguments {
            return Err(format!(
                "kernel {function}: {} arguments, but it takes {}",
                arguments.len(),
                kernel.arguments
            ));
        }
        let (order, seed) = match order {
            Order::Forward => (0, 0),
            Order::Reverse => (1, 0),
            Order::Random(seed) => (2, seed),
        };
        let mut arguments = arguments.to_vec();
        let _guard = LAUNCHING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the descriptor belongs to this library and determines the number of arguments.
        // Their targets are required of the caller.
        let message = unsafe {
            (self.launch)(
                kernel.descriptor,
                grid.as_ptr(),
                block.as_ptr(),
                shared_bytes,
                arguments.as_mut_ptr(),
                order,
                seed,
            )
        };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: the text is valid until the next launch, which the lock prevents.
        Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
    }

    fn kernel(&self, function: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == function)
    }
}
