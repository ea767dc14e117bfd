//! The functions of cuDNN in use, under the names of its header, with statuses as integers.
//!
//! cudarc binds them too, but there a status is an enum, so one that a newer cuDNN adds would be
//! undefined behavior.
#![expect(unsafe_code, reason = "cuDNN is a C library")]
#![expect(non_snake_case, reason = "names of cuDNN's header")]

#[cfg(test)]
pub(super) mod described_gpu;
pub(super) mod engines;
pub(super) mod graph;

use std::{
    ffi::{CStr, c_char, c_void},
    fmt,
    sync::OnceLock,
};

use cudarc::cudnn::sys;
pub(super) use cudarc::cudnn::sys::{cudaStream_t, cudnnDataType_t, cudnnHandle_t};

/// `cudnnStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) u32);

impl Status {
    pub(super) const CUDNN_STATUS_SUCCESS: Self = Self(0);
    pub(super) const CUDNN_STATUS_NOT_INITIALIZED: Self = Self(1001);
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_BAD_PARAM: Self = Self(2000);
    pub(super) const CUDNN_STATUS_NOT_SUPPORTED: Self = Self(3000);
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_EXECUTION_FAILED: Self = Self(5000);

    /// Returns an error unless the call succeeded.
    pub(super) const fn result(self) -> Result<(), CudnnError> {
        match self {
            Self::CUDNN_STATUS_SUCCESS => Ok(()),
            failed => Err(CudnnError(failed)),
        }
    }
}

/// The status of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CudnnError(pub(super) Status);

/// The error for requests that cuDNN does not support.
pub(super) const NOT_SUPPORTED: CudnnError = CudnnError(Status::CUDNN_STATUS_NOT_SUPPORTED);

impl fmt::Display for CudnnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", status_text(self.0), self.0.0)
    }
}

/// Returns cuDNN's name of a status.
fn status_text(status: Status) -> String {
    type Function = unsafe extern "C" fn(Status) -> *const c_char;
    // SAFETY: the type is that of cuDNN's header.
    let found = unsafe { function::<Function>("cudnnGetErrorString") };
    // SAFETY: any status is allowed.
    let text = found.map(|it| unsafe { it(status) }).filter(|it| !it.is_null());
    // SAFETY: cuDNN's texts are static and null-terminated.
    let text = text.map(|it| unsafe { CStr::from_ptr(it) });
    text.map_or_else(|| "unknown status".to_owned(), |it| it.to_string_lossy().into_owned())
}

/// Looks up a function of the library, which must have been found.
///
/// # Safety
/// The function has this type.
unsafe fn function<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: `Installation::cudnn` has loaded the library.
    let library = unsafe { sys::culib() };
    // SAFETY: required of the caller.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|it| *it)
}

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        /// Calls cuDNN's function of this name.
        ///
        /// # Safety
        /// As cuDNN's documentation says.
        pub(super) unsafe fn $name($($argument: $type),*) -> Status {
            type Function = unsafe extern "C" fn($($type),*) -> Status;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            // SAFETY: the type is that of cuDNN's header.
            let found = FUNCTION.get_or_init(|| unsafe { function(stringify!($name)) });
            // SAFETY: required of the caller.
            found.map_or(Status::CUDNN_STATUS_NOT_INITIALIZED, |it| unsafe { it($($argument),*) })
        }
    )*};
}

functions! {
    fn cudnnBackendCreateDescriptor(kind: u32, descriptor: *mut *mut c_void);
    fn cudnnBackendDestroyDescriptor(descriptor: *mut c_void);
    fn cudnnBackendSetAttribute(
        descriptor: *mut c_void, name: u32, of_type: u32, n: i64, values: *const c_void,
    );
    fn cudnnBackendGetAttribute(
        descriptor: *mut c_void, name: u32, of_type: u32, capacity: i64, n: *mut i64,
        values: *mut c_void,
    );
    fn cudnnBackendFinalize(descriptor: *mut c_void);
    fn cudnnBackendExecute(handle: cudnnHandle_t, plan: *mut c_void, tensors: *mut c_void);
    fn cudnnCreate(handle: *mut cudnnHandle_t);
    fn cudnnDestroy(handle: cudnnHandle_t);
    fn cudnnSetStream(handle: cudnnHandle_t, stream: cudaStream_t);
}

#[cfg(test)]
mod tests {
    use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

    use super::*;
    use crate::cuda::{
        convolution::Cudnn,
        headers::{Asserts, same_numbers},
        host_tensor::gpus,
    };

    #[test]
    fn numbers_are_those_of_the_header() {
        let mut asserts = Asserts::about("cudnn.h");
        same_numbers! { asserts,
            cudnnDataType_t: CUDNN_DATA_FLOAT CUDNN_DATA_BFLOAT16;
        }
        let statuses = [
            ("CUDNN_STATUS_SUCCESS", Status::CUDNN_STATUS_SUCCESS),
            ("CUDNN_STATUS_NOT_INITIALIZED", Status::CUDNN_STATUS_NOT_INITIALIZED),
            ("CUDNN_STATUS_BAD_PARAM", Status::CUDNN_STATUS_BAD_PARAM),
            ("CUDNN_STATUS_NOT_SUPPORTED", Status::CUDNN_STATUS_NOT_SUPPORTED),
            ("CUDNN_STATUS_EXECUTION_FAILED", Status::CUDNN_STATUS_EXECUTION_FAILED),
        ];
        statuses.iter().for_each(|(name, status)| asserts.equal(name, status.0));
        asserts.check("cudnn");
    }

    #[test]
    fn unknown_statuses_are_errors() {
        let settings = [("SOYBEAN_FAKE_CUDNN_STATUS", "5999")];
        on_virtual_gpus("cuda::cudnn::tests::unknown_statuses_are_errors", &settings, |_| {
            let error = Cudnn::new(&gpus(1)[0]).err().expect("cuDNN refuses").to_string();
            assert!(error.ends_with(": CUDNN_STATUS unknown (5999)"), "{error}");
        });
    }
}
