//! One GPU: its primary context and properties.
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
    /// Context that this thread made current last, so that it is not set before every call.
    static CURRENT: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// Properties of a GPU that need no context, and so take none of its memory.
pub(crate) struct DeviceProperties {
    device: sys::CUdevice,
    /// Name from the driver.
    pub(crate) name: String,
    /// Compute capability, such as (9, 0).
    pub(crate) capability: (i32, i32),
    /// Memory of the device in bytes.
    pub(crate) memory_bytes: usize,
}

impl DeviceProperties {
    /// Queries the GPU with this ordinal. The driver must be initialized.
    pub(crate) fn of(ordinal: usize) -> Result<Self, Error> {
        let of = |what: &str| {
            let what = format!("{what} of GPU {ordinal}");
            move |error| driver_error(&what, error)
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
        // SAFETY: the handle comes from the driver.
        let memory_bytes =
            unsafe { result::device::total_mem(device) }.map_err(of("the memory"))?;
        Ok(Self { device, name, capability, memory_bytes })
    }
}

/// A GPU with its primary context, which is retained until this value is dropped.
pub(crate) struct Gpu {
    /// Device ordinal.
    pub(crate) ordinal: usize,
    /// Name from the driver.
    pub(crate) name: String,
    /// Compute capability, such as (9, 0).
    pub(crate) capability: (i32, i32),
    /// CUDA version of the driver, in the format of [`Version`].
    pub(crate) driver_version: i32,
    /// Memory of the device in bytes.
    pub(crate) memory_bytes: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    is_lost: AtomicBool,
}

// SAFETY: a context may be used from any thread that makes it current, as every call here does.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver synchronizes access to contexts.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Retains the primary context of the GPU with this ordinal. The driver must be initialized.
    pub(crate) fn new(ordinal: usize) -> Result<Arc<Self>, Error> {
        let DeviceProperties { device, name, capability, memory_bytes } =
            DeviceProperties::of(ordinal)?;
        // SAFETY: the handle comes from the driver; released when dropped.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|error| driver_error(&format!("the context of GPU {ordinal}"), error))?;
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

    /// Makes the context current on this thread, unless it was the last one set here.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        let is_current = CURRENT.get() == self.context && !self.is_lost.load(Ordering::Relaxed);
        if is_current { Ok(()) } else { self.make_current() }
    }

    /// Makes the context current on this thread, even if other code has changed it.
    pub(crate) fn make_current(&self) -> Result<(), Error> {
        if self.is_lost.load(Ordering::Relaxed) {
            let message =
                format!("expected {self:?} to work, found that it was abandoned after an error");
            return Err(Error::new(ErrorKind::Device, message));
        }
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.context) }
            .map_err(|error| self.error("using the context", error))?;
        CURRENT.set(self.context);
        Ok(())
    }

    /// Enables access of this GPU's kernels to the memory of another GPU. Returns false if the
    /// hardware does not support it.
    pub(crate) fn enable_peer(&self, peer: &Self) -> Result<bool, Error> {
        let mut can_access = 0;
        // SAFETY: both handles come from the driver, and the result is a local variable.
        let asked =
            unsafe { sys::cuDeviceCanAccessPeer(&mut can_access, self.device, peer.device) };
        asked.result().map_err(|error| self.error("asking for peer access", error))?;
        if can_access == 0 {
            return Ok(false);
        }
        self.bind()?;
        // SAFETY: both contexts are retained.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context, 0) } {
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {
                Ok(true)
            }
            error => Err(self.error("enabling peer access", DriverError(error))),
        }
    }

    /// Marks the GPU as lost after an error. No further calls are made for it, since calls that
    /// free resources would wait for work that may never complete.
    pub(crate) fn abandon(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        if CURRENT.get() == self.context {
            CURRENT.set(std::ptr::null_mut());
        }
    }

    /// Returns the free memory in bytes.
    pub(crate) fn free_bytes(&self) -> Result<usize, Error> {
        self.bind()?;
        let (free, _) =
            result::mem_get_info().map_err(|error| self.error("asking for memory", error))?;
        Ok(free)
    }

    /// Returns the architecture name for NVRTC, such as `sm_90`.
    pub(crate) fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }

    /// Converts a driver error on this GPU.
    pub(crate) fn error(&self, what: &str, error: DriverError) -> Error {
        driver_error(&format!("{what} on GPU {}", self.ordinal), error)
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
        // SAFETY: retained in `new`. After a fatal error the driver refuses, and there is nothing
        // left to release.
        let _refused = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({})", self.ordinal, self.name)
    }
}

/// Returns the driver's handle of a GPU.
fn handle(ordinal: usize) -> Result<sys::CUdevice, Error> {
    let number = c_int::try_from(ordinal).map_err(|_| {
        Error::new(ErrorKind::Device, format!("expected the number of a GPU, found {ordinal}"))
    })?;
    result::device::get(number)
        .map_err(|error| driver_error(&format!("the handle of GPU {ordinal}"), error))
}

/// Returns the UUID of a GPU, the same in all processes. The driver must be initialized.
#[cfg(feature = "mpi")]
pub(crate) fn uuid(ordinal: usize) -> Result<[u8; 16], Error> {
    let found = result::device::get_uuid(handle(ordinal)?)
        .map_err(|error| driver_error(&format!("the uuid of GPU {ordinal}"), error))?;
    Ok(found.bytes.map(|it| it.to_ne_bytes()[0]))
}

/// Returns the CUDA version of the driver.
pub(crate) fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: the result is a local variable.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version) };
    asked.result().map_err(|error| driver_error("the driver's version", error))?;
    Ok(version)
}

/// A version in CUDA's format: 13020 is 13.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) i32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<i32, DriverError> {
    // SAFETY: the handle comes from the driver.
    unsafe { result::device::get_attribute(device, which) }
}

/// Converts a driver error.
pub(crate) fn driver_error(what: &str, error: DriverError) -> Error {
    let text = error.error_string().ok().and_then(|it| it.to_str().ok()).unwrap_or("unknown error");
    let name = error.error_name().ok().and_then(|it| it.to_str().ok()).unwrap_or("no name");
    Error::new(ErrorKind::Device, format!("{what}: {text} ({name})"))
}
