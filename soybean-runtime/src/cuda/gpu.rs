//! One GPU: its context, and what is known of it.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{
    cell::Cell,
    ffi::c_int,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::{DriverError, result, sys};

use crate::{Error, ErrorKind};

thread_local! {
    /// The context that this thread has made current, so that it need not be set for every call.
    static CURRENT: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// What the driver says of a GPU before any of its memory is taken, as a context would.
pub(crate) struct Description {
    device: sys::CUdevice,
    /// The name that the driver gives.
    pub(crate) name: String,
    /// Compute capability, such as 9 and 0.
    pub(crate) capability: (i32, i32),
    /// The memory of the whole device, in bytes.
    pub(crate) memory_bytes: usize,
}

impl Description {
    /// The GPU with this number. The driver must be there and initialised.
    pub(crate) fn of(ordinal: usize) -> Result<Self, Error> {
        let of = |what: &str| {
            let what = format!("{what} of GPU {ordinal}");
            move |error| fault(&what, error)
        };
        let device = handle(ordinal)?;
        let name = result::device::get_name(device).map_err(of("the name"))?;
        let capability = (
            attribute(
                device,
                sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            )
            .map_err(of("the capability"))?,
            attribute(
                device,
                sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
            .map_err(of("the capability"))?,
        );
        // SAFETY: the driver gave the handle.
        let memory_bytes =
            unsafe { result::device::total_mem(device) }.map_err(of("the memory"))?;
        Ok(Self { device, name, capability, memory_bytes })
    }
}

/// A GPU with its primary context, which lives as long as this does.
pub(crate) struct Gpu {
    /// The driver's number.
    pub(crate) ordinal: usize,
    /// The name that the driver gives.
    pub(crate) name: String,
    /// Compute capability, such as 9 and 0.
    pub(crate) capability: (i32, i32),
    /// The version of CUDA that the driver is made for, as [`Version`] shows it.
    pub(crate) driver_version: i32,
    /// The memory of the whole device, in bytes.
    pub(crate) memory_bytes: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    is_lost: AtomicBool,
}

// SAFETY: contexts may be used from any thread that makes them current, which every call here does.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// The GPU with this number. The driver must be there and initialised.
    pub(crate) fn new(ordinal: usize) -> Result<Arc<Self>, Error> {
        let Description { device, name, capability, memory_bytes } = Description::of(ordinal)?;
        // SAFETY: the driver gave the handle; released when dropped.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|error| fault(&format!("the context of GPU {ordinal}"), error))?;
        let driver_version = driver_version()?;
        let is_lost = AtomicBool::new(false);
        let gpu = Self {
            ordinal,
            name,
            capability,
            driver_version,
            memory_bytes,
            device,
            context,
            is_lost,
        };
        gpu.make_current()?;
        Ok(Arc::new(gpu))
    }

    /// Makes the context current on this thread, if this thread has not done so last.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        if CURRENT.get() == self.context { Ok(()) } else { self.make_current() }
    }

    /// Makes the context current on this thread, whatever others have done here in between.
    pub(crate) fn make_current(&self) -> Result<(), Error> {
        if self.is_lost.load(Ordering::Relaxed) {
            let message =
                format!("expected that all GPUs still work, found that {self:?} was given up");
            return Err(Error::new(ErrorKind::Device, message));
        }
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.context) }
            .map_err(|error| self.fault("using the context", error))?;
        CURRENT.set(self.context);
        Ok(())
    }

    /// Lets kernels of this GPU read and write the memory of another; whether they can.
    pub(crate) fn enable_peer(&self, peer: &Self) -> Result<bool, Error> {
        let mut can_access = 0;
        // SAFETY: both handles are the driver's, and the result is a place of this function.
        let asked =
            unsafe { sys::cuDeviceCanAccessPeer(&mut can_access, self.device, peer.device) };
        asked.result().map_err(|error| self.fault("asking for peer access", error))?;
        if can_access == 0 {
            return Ok(false);
        }
        self.bind()?;
        // SAFETY: both contexts are retained.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context, 0) } {
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {
                Ok(true)
            }
            error => Err(self.fault("enabling peer access", DriverError(error))),
        }
    }

    /// Waits on the host until all work on this GPU is done. What the host writes goes by a stream of its own, for which no other waits.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.bind()?;
        result::ctx::synchronize().map_err(|error| self.fault("waiting for the device", error))
    }

    /// Gives the GPU up after a failure of it or of one that it works with: no call is made for it any more, since those that free something would wait for
    /// work that may never end.
    pub(crate) fn give_up(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        if CURRENT.get() == self.context {
            CURRENT.set(std::ptr::null_mut());
        }
    }

    /// The bytes that are free.
    pub(crate) fn free_bytes(&self) -> Result<usize, Error> {
        self.bind()?;
        let (free, _) =
            result::mem_get_info().map_err(|error| self.fault("asking for memory", error))?;
        Ok(free)
    }

    /// The name under which NVRTC knows the instruction set.
    pub(crate) fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }

    /// A failure of the driver on this GPU.
    pub(crate) fn fault(&self, what: &str, error: DriverError) -> Error {
        fault(&format!("{what} on GPU {}", self.ordinal), error)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if CURRENT.get() == self.context {
            CURRENT.set(std::ptr::null_mut());
        }
        if self.is_lost.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: retained in `new`. After a fatal error the driver refuses, and there is nothing left to release.
        let _refused = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({})", self.ordinal, self.name)
    }
}

/// The driver's handle of the GPU with this number.
fn handle(ordinal: usize) -> Result<sys::CUdevice, Error> {
    let number = c_int::try_from(ordinal).map_err(|_| {
        Error::new(ErrorKind::Device, format!("expected the number of a GPU, found {ordinal}"))
    })?;
    result::device::get(number)
        .map_err(|error| fault(&format!("the handle of GPU {ordinal}"), error))
}

/// What the GPU with this number is known by in all processes. The driver must be there and initialised.
#[cfg(feature = "mpi")]
pub(crate) fn identity(ordinal: usize) -> Result<[u8; 16], Error> {
    let found = result::device::get_uuid(handle(ordinal)?)
        .map_err(|error| fault(&format!("the identity of GPU {ordinal}"), error))?;
    Ok(found.bytes.map(|it| it.to_ne_bytes()[0]))
}

/// The version of CUDA that the driver is made for.
pub(crate) fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: the result is a place of this function.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
    asked.result().map_err(|error| fault("the driver's version", error))?;
    Ok(version)
}

/// A version as CUDA counts them: 13020 is 13.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<i32, DriverError> {
    // SAFETY: the driver gave the handle.
    unsafe { result::device::get_attribute(device, which) }
}

/// What the driver says of a failure.
pub(crate) fn fault(what: &str, error: DriverError) -> Error {
    let text = error.error_string().ok().and_then(|it| it.to_str().ok()).unwrap_or("unknown error");
    let name = error.error_name().ok().and_then(|it| it.to_str().ok()).unwrap_or("no name");
    Error::new(ErrorKind::Device, format!("{what}: {text} ({name})"))
}
