//! cuDNN's convolution algorithms. The three kinds of convolution have different types and
//! functions with the same meaning.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

use std::ffi::c_void;

use soybean_plan::ConvolutionForm;

use super::descriptor::{ConvolutionDescriptor, FilterDescriptor, TensorDescriptor};
use crate::cuda::cudnn::{
    self as sys, CudnnError, Status, cudnnDeterminism_t as Determinism, cudnnMathType_t as Math,
};

/// Descriptors of a convolution, the same for all three kinds.
pub(super) struct Descriptors {
    pub(super) images: TensorDescriptor,
    pub(super) filters: FilterDescriptor,
    pub(super) results: TensorDescriptor,
    pub(super) convolution: ConvolutionDescriptor,
}

/// An algorithm for one kind of convolution.
#[derive(Clone, Copy, Debug)]
pub(super) enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Data(sys::cudnnConvolutionBwdDataAlgo_t),
    Filter(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// Device addresses of a convolution's tensors.
#[derive(Clone, Copy)]
pub(super) struct TensorPointers {
    pub(super) left: *const c_void,
    pub(super) right: *const c_void,
    /// The bias of an epilogue, or null.
    pub(super) bias: *const c_void,
    pub(super) result: *mut c_void,
    pub(super) workspace: *mut c_void,
    pub(super) workspace_bytes: usize,
}

/// Number of algorithms that are requested. cuDNN has fewer.
const N_ALGORITHMS: u8 = 16;

macro_rules! search {
    ($form:ident: $function:ident($handle:expr, $descriptions:expr) -> $result:ident, from $none:expr) => {{
        let none = sys::$result {
            algo: $none,
            status: Status::CUDNN_STATUS_NOT_INITIALIZED,
            time: 0.0,
            memory: 0,
            determinism: Determinism::CUDNN_NON_DETERMINISTIC,
            mathType: Math::CUDNN_DEFAULT_MATH,
            reserved: [0; 3],
        };
        let (mut found, mut n_found) = ([none; N_ALGORITHMS as usize], 0);
        let (count, (first, second, third, fourth)) = (N_ALGORITHMS.into(), $descriptions);
        // SAFETY: all handles are valid, and there is memory for as many results as are requested.
        let asked = unsafe {
            sys::$function(
                $handle,
                first,
                second,
                third,
                fourth,
                count,
                &mut n_found,
                found.as_mut_ptr(),
            )
        };
        asked.result()?;
        let found = found.into_iter().take(usize::try_from(n_found).unwrap_or(0));
        let fitting = found.filter(|it| {
            // Results must be reproducible bit by bit.
            it.status == Status::CUDNN_STATUS_SUCCESS
                && it.determinism == Determinism::CUDNN_DETERMINISTIC
        });
        fitting.map(|it| (Self::$form(it.algo), it.mathType)).collect()
    }};
}

impl Algorithm {
    /// Returns the deterministic algorithms with their math types, the fastest by cuDNN's heuristic
    /// first.
    pub(super) fn ranked(
        handle: sys::cudnnHandle_t,
        form: ConvolutionForm,
        descriptors: &Descriptors,
    ) -> Result<Vec<(Self, Math)>, CudnnError> {
        let Descriptors { images, filters, results, convolution } = descriptors;
        let (images, filters, results) = (images.raw(), filters.raw(), results.raw());
        let convolution = convolution.raw();
        Ok(match form {
            ConvolutionForm::Forward => search!(
                Forward: cudnnGetConvolutionForwardAlgorithm_v7(handle, (images, filters, convolution, results)) -> cudnnConvolutionFwdAlgoPerf_t,
                from sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
            ),
            ConvolutionForm::Data => search!(
                Data: cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, (filters, results, convolution, images)) -> cudnnConvolutionBwdDataAlgoPerf_t,
                from sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
            ),
            ConvolutionForm::Filter => search!(
                Filter: cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, (images, results, convolution, filters)) -> cudnnConvolutionBwdFilterAlgoPerf_t,
                from sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
            ),
        })
    }

    /// Returns whether the algorithm multiplies sums of pixels, whose errors are larger than those
    /// of single precision. Source: Lavin & Gray 2016, for Winograd's transforms.
    pub(super) const fn transforms_numbers(self) -> bool {
        use sys::{
            cudnnConvolutionBwdDataAlgo_t as Data, cudnnConvolutionBwdFilterAlgo_t as Filter,
            cudnnConvolutionFwdAlgo_t as Forward,
        };
        match self {
            Self::Forward(it) => matches!(
                it,
                Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
                    | Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
            ),
            Self::Data(it) => matches!(
                it,
                Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD
                    | Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED
            ),
            Self::Filter(it) => matches!(
                it,
                Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
                    | Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED
            ),
        }
    }

    /// Returns the workspace in bytes, which can differ from what the heuristic says.
    pub(super) fn workspace_bytes(
        self,
        handle: sys::cudnnHandle_t,
        descriptors: &Descriptors,
    ) -> Result<usize, CudnnError> {
        let Descriptors { images, filters, results, convolution } = descriptors;
        let (images, filters, results, convolution) =
            (images.raw(), filters.raw(), results.raw(), convolution.raw());
        let mut n_bytes = 0;
        let size = &mut n_bytes;
        let asked = match self {
            // SAFETY: all handles are valid, and the result is a local variable.
            Self::Forward(it) => unsafe {
                sys::cudnnGetConvolutionForwardWorkspaceSize(
                    handle,
                    images,
                    filters,
                    convolution,
                    results,
                    it,
                    size,
                )
            },
            // SAFETY: as above.
            Self::Data(it) => unsafe {
                sys::cudnnGetConvolutionBackwardDataWorkspaceSize(
                    handle,
                    filters,
                    results,
                    convolution,
                    images,
                    it,
                    size,
                )
            },
            // SAFETY: as above.
            Self::Filter(it) => unsafe {
                sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                    handle,
                    images,
                    results,
                    convolution,
                    filters,
                    it,
                    size,
                )
            },
        };
        asked.result().map(|()| n_bytes)
    }

    /// Queues the convolution on the handle's stream.
    ///
    /// # Safety
    /// The pointers refer to the described tensors until the convolution completes.
    pub(super) unsafe fn run(
        self,
        handle: sys::cudnnHandle_t,
        descriptors: &Descriptors,
        pointers: TensorPointers,
    ) -> Result<(), CudnnError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (alpha, beta) = (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&zero).cast());
        let Descriptors { images, filters, results, convolution } = descriptors;
        let (images, filters, results, convolution) =
            (images.raw(), filters.raw(), results.raw(), convolution.raw());
        let TensorPointers { left, right, bias: _, result, workspace, workspace_bytes } = pointers;
        let queued = match self {
            // SAFETY: required of the caller.
            Self::Forward(it) => unsafe {
                sys::cudnnConvolutionForward(
                    handle,
                    alpha,
                    images,
                    left,
                    filters,
                    right,
                    convolution,
                    it,
                    workspace,
                    workspace_bytes,
                    beta,
                    results,
                    result,
                )
            },
            // SAFETY: required of the caller.
            Self::Data(it) => unsafe {
                sys::cudnnConvolutionBackwardData(
                    handle,
                    alpha,
                    filters,
                    right,
                    results,
                    left,
                    convolution,
                    it,
                    workspace,
                    workspace_bytes,
                    beta,
                    images,
                    result,
                )
            },
            // SAFETY: required of the caller.
            Self::Filter(it) => unsafe {
                sys::cudnnConvolutionBackwardFilter(
                    handle,
                    alpha,
                    images,
                    left,
                    results,
                    right,
                    convolution,
                    it,
                    workspace,
                    workspace_bytes,
                    beta,
                    filters,
                    result,
                )
            },
        };
        queued.result()
    }
}
