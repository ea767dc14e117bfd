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
pub(super) mod handle;

use std::ffi::c_void;

pub(super) use cudarc::cudnn::sys::{cudaStream_t, cudnnDataType_t, cudnnHandle_t};

use super::libraries::{functions, statuses};

statuses!(cudnn, "cudnnGetErrorString", u32, CudnnError);

impl Status {
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_SUCCESS: Self = Self(0);
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_NOT_INITIALIZED: Self = Self(1001);
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_BAD_PARAM: Self = Self(2000);
    pub(super) const CUDNN_STATUS_NOT_SUPPORTED: Self = Self(3000);
    #[cfg(test)]
    pub(super) const CUDNN_STATUS_EXECUTION_FAILED: Self = Self(5000);
}

/// The error for requests that cuDNN does not support.
pub(super) const NOT_SUPPORTED: CudnnError = CudnnError(Status::CUDNN_STATUS_NOT_SUPPORTED);

functions! {
    cudnn -> Status;
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

    use super::{handle::Cudnn, *};
    use crate::cuda::{
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
