//! The functions of cuDNN in use, under the names of its header, with statuses as integers.
//!
//! cudarc binds them too, but there a status is an enum, so one that a newer cuDNN adds would be
//! undefined behavior.
#![expect(unsafe_code, reason = "cuDNN is a C library")]
#![expect(non_camel_case_types, non_snake_case, reason = "names of cuDNN's header")]
#![expect(clippy::too_many_arguments, reason = "functions of cuDNN's header")]

pub(super) mod graph;

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    fmt,
};

pub(super) use cudarc::cudnn::sys::{
    cudaStream_t, cudnnActivationDescriptor_t, cudnnActivationMode_t,
    cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionDescriptor_t,
    cudnnConvolutionFwdAlgo_t, cudnnConvolutionMode_t, cudnnDataType_t, cudnnDeterminism_t,
    cudnnFilterDescriptor_t, cudnnHandle_t, cudnnMathType_t, cudnnNanPropagation_t,
    cudnnTensorDescriptor_t, cudnnTensorFormat_t,
};

use super::libraries::{functions, installation};

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
    let library = installation().cudnn().ok()?;
    // SAFETY: required of the caller.
    unsafe { library.function(name) }
}

/// A description of an algorithm: `cudnnConvolutionFwdAlgoPerf_t` and those of the gradients.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AlgorithmPerformance<A> {
    pub(super) algo: A,
    pub(super) status: Status,
    pub(super) time: f32,
    pub(super) memory: usize,
    pub(super) determinism: cudnnDeterminism_t,
    pub(super) mathType: cudnnMathType_t,
    pub(super) reserved: [c_int; 3],
}

pub(super) type cudnnConvolutionFwdAlgoPerf_t = AlgorithmPerformance<cudnnConvolutionFwdAlgo_t>;
pub(super) type cudnnConvolutionBwdDataAlgoPerf_t =
    AlgorithmPerformance<cudnnConvolutionBwdDataAlgo_t>;
pub(super) type cudnnConvolutionBwdFilterAlgoPerf_t =
    AlgorithmPerformance<cudnnConvolutionBwdFilterAlgo_t>;

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
    fn cudnnCreateTensorDescriptor(tensor: *mut cudnnTensorDescriptor_t);
    fn cudnnDestroyTensorDescriptor(tensor: cudnnTensorDescriptor_t);
    fn cudnnSetTensor4dDescriptor(
        tensor: cudnnTensorDescriptor_t, format: cudnnTensorFormat_t, dtype: cudnnDataType_t,
        batch: c_int, channels: c_int, height: c_int, width: c_int,
    );
    fn cudnnCreateFilterDescriptor(filter: *mut cudnnFilterDescriptor_t);
    fn cudnnDestroyFilterDescriptor(filter: cudnnFilterDescriptor_t);
    fn cudnnSetFilter4dDescriptor(
        filter: cudnnFilterDescriptor_t, dtype: cudnnDataType_t, format: cudnnTensorFormat_t,
        filters: c_int, channels: c_int, height: c_int, width: c_int,
    );
    fn cudnnCreateConvolutionDescriptor(convolution: *mut cudnnConvolutionDescriptor_t);
    fn cudnnDestroyConvolutionDescriptor(convolution: cudnnConvolutionDescriptor_t);
    fn cudnnSetConvolution2dDescriptor(
        convolution: cudnnConvolutionDescriptor_t, padding_height: c_int, padding_width: c_int,
        stride_height: c_int, stride_width: c_int, dilation_height: c_int, dilation_width: c_int,
        mode: cudnnConvolutionMode_t, compute_type: cudnnDataType_t,
    );
    fn cudnnSetConvolutionGroupCount(convolution: cudnnConvolutionDescriptor_t, groups: c_int);
    fn cudnnSetConvolutionMathType(convolution: cudnnConvolutionDescriptor_t, math: cudnnMathType_t);
    fn cudnnCreateActivationDescriptor(activation: *mut cudnnActivationDescriptor_t);
    fn cudnnDestroyActivationDescriptor(activation: cudnnActivationDescriptor_t);
    fn cudnnSetActivationDescriptor(
        activation: cudnnActivationDescriptor_t, mode: cudnnActivationMode_t,
        of_nan: cudnnNanPropagation_t, coefficient: f64,
    );
    fn cudnnGetConvolutionForwardAlgorithm_v7(
        handle: cudnnHandle_t, images: cudnnTensorDescriptor_t, filters: cudnnFilterDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, results: cudnnTensorDescriptor_t,
        requested: c_int, returned: *mut c_int, found: *mut cudnnConvolutionFwdAlgoPerf_t,
    );
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
        handle: cudnnHandle_t, filters: cudnnFilterDescriptor_t, results: cudnnTensorDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, images: cudnnTensorDescriptor_t,
        requested: c_int, returned: *mut c_int, found: *mut cudnnConvolutionBwdDataAlgoPerf_t,
    );
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        handle: cudnnHandle_t, images: cudnnTensorDescriptor_t, results: cudnnTensorDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, filters: cudnnFilterDescriptor_t,
        requested: c_int, returned: *mut c_int, found: *mut cudnnConvolutionBwdFilterAlgoPerf_t,
    );
    fn cudnnGetConvolutionForwardWorkspaceSize(
        handle: cudnnHandle_t, images: cudnnTensorDescriptor_t, filters: cudnnFilterDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, results: cudnnTensorDescriptor_t,
        algorithm: cudnnConvolutionFwdAlgo_t, n_bytes: *mut usize,
    );
    fn cudnnGetConvolutionBackwardDataWorkspaceSize(
        handle: cudnnHandle_t, filters: cudnnFilterDescriptor_t, results: cudnnTensorDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, images: cudnnTensorDescriptor_t,
        algorithm: cudnnConvolutionBwdDataAlgo_t, n_bytes: *mut usize,
    );
    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
        handle: cudnnHandle_t, images: cudnnTensorDescriptor_t, results: cudnnTensorDescriptor_t,
        convolution: cudnnConvolutionDescriptor_t, filters: cudnnFilterDescriptor_t,
        algorithm: cudnnConvolutionBwdFilterAlgo_t, n_bytes: *mut usize,
    );
    fn cudnnConvolutionForward(
        handle: cudnnHandle_t, alpha: *const c_void,
        images: cudnnTensorDescriptor_t, image_data: *const c_void,
        filters: cudnnFilterDescriptor_t, filter_data: *const c_void,
        convolution: cudnnConvolutionDescriptor_t, algorithm: cudnnConvolutionFwdAlgo_t,
        workspace: *mut c_void, workspace_bytes: usize, beta: *const c_void,
        results: cudnnTensorDescriptor_t, result_data: *mut c_void,
    );
    fn cudnnConvolutionBiasActivationForward(
        handle: cudnnHandle_t, alpha: *const c_void,
        images: cudnnTensorDescriptor_t, image_data: *const c_void,
        filters: cudnnFilterDescriptor_t, filter_data: *const c_void,
        convolution: cudnnConvolutionDescriptor_t, algorithm: cudnnConvolutionFwdAlgo_t,
        workspace: *mut c_void, workspace_bytes: usize, beta: *const c_void,
        addends: cudnnTensorDescriptor_t, addend_data: *const c_void,
        bias: cudnnTensorDescriptor_t, bias_data: *const c_void,
        activation: cudnnActivationDescriptor_t,
        results: cudnnTensorDescriptor_t, result_data: *mut c_void,
    );
    fn cudnnConvolutionBackwardData(
        handle: cudnnHandle_t, alpha: *const c_void,
        filters: cudnnFilterDescriptor_t, filter_data: *const c_void,
        results: cudnnTensorDescriptor_t, result_data: *const c_void,
        convolution: cudnnConvolutionDescriptor_t, algorithm: cudnnConvolutionBwdDataAlgo_t,
        workspace: *mut c_void, workspace_bytes: usize, beta: *const c_void,
        images: cudnnTensorDescriptor_t, image_data: *mut c_void,
    );
    fn cudnnConvolutionBackwardFilter(
        handle: cudnnHandle_t, alpha: *const c_void,
        images: cudnnTensorDescriptor_t, image_data: *const c_void,
        results: cudnnTensorDescriptor_t, result_data: *const c_void,
        convolution: cudnnConvolutionDescriptor_t, algorithm: cudnnConvolutionBwdFilterAlgo_t,
        workspace: *mut c_void, workspace_bytes: usize, beta: *const c_void,
        filters: cudnnFilterDescriptor_t, filter_data: *mut c_void,
    );
}

#[cfg(test)]
mod tests {
    use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

    use super::*;
    use crate::cuda::{
        convolution::Cudnn,
        headers::{Asserts, same_fields, same_numbers},
        host_tensor::gpus,
    };

    #[test]
    fn numbers_are_those_of_the_header() {
        let mut asserts = Asserts::about("cudnn.h");
        same_numbers! { asserts,
            cudnnDataType_t: CUDNN_DATA_FLOAT CUDNN_DATA_BFLOAT16;
            cudnnTensorFormat_t: CUDNN_TENSOR_NCHW CUDNN_TENSOR_NHWC;
            cudnnConvolutionMode_t: CUDNN_CROSS_CORRELATION;
            cudnnMathType_t: CUDNN_DEFAULT_MATH CUDNN_TENSOR_OP_MATH CUDNN_FMA_MATH;
            cudnnDeterminism_t: CUDNN_NON_DETERMINISTIC CUDNN_DETERMINISTIC;
            cudnnActivationMode_t: CUDNN_ACTIVATION_RELU CUDNN_ACTIVATION_IDENTITY;
            cudnnNanPropagation_t: CUDNN_NOT_PROPAGATE_NAN;
            cudnnConvolutionFwdAlgo_t:
                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
            cudnnConvolutionBwdDataAlgo_t: CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
            cudnnConvolutionBwdFilterAlgo_t: CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
        }
        let statuses = [
            ("CUDNN_STATUS_SUCCESS", Status::CUDNN_STATUS_SUCCESS),
            ("CUDNN_STATUS_NOT_INITIALIZED", Status::CUDNN_STATUS_NOT_INITIALIZED),
            ("CUDNN_STATUS_BAD_PARAM", Status::CUDNN_STATUS_BAD_PARAM),
            ("CUDNN_STATUS_NOT_SUPPORTED", Status::CUDNN_STATUS_NOT_SUPPORTED),
            ("CUDNN_STATUS_EXECUTION_FAILED", Status::CUDNN_STATUS_EXECUTION_FAILED),
        ];
        statuses.iter().for_each(|(name, status)| asserts.equal(name, status.0));
        same_fields! { asserts, cudnnConvolutionFwdAlgoPerf_t, "cudnnConvolutionFwdAlgoPerf_t":
            algo status time memory determinism mathType reserved
        }
        same_fields! { asserts,
            cudnnConvolutionBwdDataAlgoPerf_t, "cudnnConvolutionBwdDataAlgoPerf_t":
            algo status time memory determinism mathType reserved
        }
        same_fields! { asserts,
            cudnnConvolutionBwdFilterAlgoPerf_t, "cudnnConvolutionBwdFilterAlgoPerf_t":
            algo status time memory determinism mathType reserved
        }
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
