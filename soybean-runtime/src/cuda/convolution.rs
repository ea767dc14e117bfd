//! Convolutions by cuDNN.
//!
//! cuDNN works on images, filters and results of one type. Where a program wants gradients of `bf16` filters in `f32`, cuDNN's sums, which are in `f32`, are rounded to `bf16` in the workspace
//! and widened from there: its documentation knows `bf16` convolutions with no other results. Where tensor cores are better off with another order of dims, [`Arrangement`] says so.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

mod algorithm;
mod arrangement;
mod description;

use std::sync::Arc;

use cudarc::cudnn::{
    result::CudnnError,
    sys::{self, cudnnMathType_t as Math},
};
use soybean_plan::{Convolution, ConvolutionForm, DType, Precision};

pub(crate) use self::arrangement::{Arrangement, Rearrangement};
use self::{
    algorithm::{Algorithm, Parts, Places},
    arrangement::{Layout, MOST_COPIED_BYTES, Part},
    description::{Filter, NOT_SUPPORTED, Tensor, Walk},
};
use super::{gpu::Gpu, libraries::find, stream::Stream};
use crate::{Error, ErrorKind};

/// The most memory that an algorithm may ask for. Transforms of large images ask for more than they are worth.
pub(crate) const MOST_WORKSPACE_BYTES: usize = 256 << 20;

/// cuDNN on one GPU.
pub(crate) struct Dnn {
    gpu: Arc<Gpu>,
    raw: sys::cudnnHandle_t,
}

// SAFETY: a handle may be used from any thread, by one at a time, that makes its context current, which every call here does.
unsafe impl Send for Dnn {}

impl Dnn {
    /// Opens the library for a GPU.
    ///
    /// # Errors
    /// If it is missing or does not work with this GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        find().cudnn()?;
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the result is a place of this function.
        let made = unsafe { sys::cudnnCreate(&mut raw) };
        made.result().map_err(|error| fault(&format!("starting cuDNN on {gpu:?}"), error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }
}

impl Drop for Dnn {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made in `new`. After a fatal error cuDNN refuses, and there is nothing left to destroy.
            let _refused = unsafe { sys::cudnnDestroy(self.raw) };
        }
    }
}

/// A convolution of a program, ready to run.
pub(crate) struct ConvolutionPlan {
    parts: Parts,
    algorithm: Algorithm,
    arrangement: Arrangement,
    /// Those of the algorithm.
    workspace_bytes: usize,
}

// SAFETY: the descriptions belong to this value alone.
unsafe impl Send for ConvolutionPlan {}

impl ConvolutionPlan {
    /// The convolution with these types of the two inputs and the result; `None` if cuDNN cannot compute it, or only with other results each time.
    ///
    /// # Errors
    /// If cuDNN fails.
    pub(crate) fn new(
        dnn: &Dnn,
        convolution: &Convolution,
        types: [DType; 3],
        precision: Precision,
    ) -> Result<Option<Self>, Error> {
        dnn.gpu.bind()?;
        let usual = Some(convolution).filter(|it| is_usual(it));
        let Some(computed) = usual.and_then(|it| computed_in(it.form, types)) else {
            return Ok(None);
        };
        let math = math(computed, precision);
        for &layout in Layout::candidates(convolution, computed) {
            let arrangement = Arrangement::new(convolution, types, computed, layout);
            if layout != Layout::ChannelsFirst && arrangement.copied_bytes > MOST_COPIED_BYTES {
                continue;
            }
            match Self::with(dnn, convolution, (computed, math, layout), arrangement) {
                Ok(plan) => return Ok(Some(plan)),
                // Another layout may do, else another kernel computes what cuDNN does not.
                Err(error) if is_refusal(error) => {}
                Err(error) => return Err(fault("planning a convolution", error)),
            }
        }
        Ok(None)
    }

    fn with(
        dnn: &Dnn,
        convolution: &Convolution,
        (dtype, math, layout): (DType, Math, Layout),
        arrangement: Arrangement,
    ) -> Result<Self, CudnnError> {
        let [images, filters, results] =
            [Part::Images, Part::Filters, Part::Results].map(|it| it.extents(convolution));
        let parts = Parts {
            images: Tensor::new(dtype, layout, images)?,
            filters: Filter::new(dtype, layout, filters)?,
            results: Tensor::new(dtype, layout, results)?,
            walk: Walk::new(convolution, math)?,
        };
        let (algorithm, suited) = Algorithm::find(dnn.raw, convolution.form, &parts)?;
        // What forbids coarser numbers stays, whatever the algorithm would suit best.
        if math != Math::CUDNN_FMA_MATH {
            parts.walk.set_math(suited)?;
        }
        let workspace_bytes = algorithm.workspace_bytes(dnn.raw, &parts)?;
        if workspace_bytes > MOST_WORKSPACE_BYTES {
            return Err(NOT_SUPPORTED);
        }
        Ok(Self { parts, algorithm, arrangement, workspace_bytes })
    }

    /// Where [`Self::run`] expects its operands, and the copies that are to be made before and after it.
    pub(crate) const fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// The memory that [`Self::run`] and the copies need besides the operands of the kernel.
    pub(crate) const fn workspace_bytes(&self) -> usize {
        self.arrangement.copied_bytes + self.workspace_bytes
    }

    /// Computes the convolution when the stream comes to it; the operands stand in the order of its kernel's, where [`Self::arrangement`] says.
    ///
    /// # Safety
    /// The handle is the one that the plan was made with, and the stream is of the same GPU. Until the convolution is computed there are at these addresses, of that GPU, the tensors that it
    /// describes; nobody else uses the result, nor the workspace, which has as many bytes as [`Self::workspace_bytes`] says.
    pub(crate) unsafe fn run(
        &self,
        dnn: &Dnn,
        stream: &Stream,
        [left, right, result]: [u64; 3],
        workspace: u64,
    ) -> Result<(), Error> {
        let refused = |error| fault("a convolution", error);
        let raw = stream.raw()?;
        // SAFETY: both handles are alive.
        unsafe { sys::cudnnSetStream(dnn.raw, raw.cast()) }.result().map_err(refused)?;
        let places = Places {
            left: left as *const _,
            right: right as *const _,
            result: result as *mut _,
            workspace: (workspace + self.arrangement.copied_bytes as u64) as *mut _,
            workspace_bytes: self.workspace_bytes,
        };
        // SAFETY: required of the caller.
        unsafe { self.algorithm.run(dnn.raw, &self.parts, places) }.map_err(refused)
    }
}

/// The type of all numbers that cuDNN reads and writes for operands of these types; none if it has no such convolution.
fn computed_in(form: ConvolutionForm, types: [DType; 3]) -> Option<DType> {
    match types {
        [DType::F32, DType::F32, DType::F32] => Some(DType::F32),
        [DType::Bf16, DType::Bf16, DType::Bf16] => Some(DType::Bf16),
        [DType::Bf16, DType::Bf16, DType::F32] => {
            (form == ConvolutionForm::Filter).then_some(DType::Bf16)
        }
        _ => None,
    }
}

/// With which numbers products are computed. All sums are in single precision.
fn math(computed: DType, precision: Precision) -> Math {
    match (computed, precision) {
        (DType::Bf16, _) => Math::CUDNN_TENSOR_OP_MATH,
        (_, Precision::F32) => Math::CUDNN_FMA_MATH,
        (_, Precision::Tf32 | Precision::Bf16) => Math::CUDNN_DEFAULT_MATH,
    }
}

/// Whether the results are as many as cuDNN would compute.
fn is_usual(convolution: &Convolution) -> bool {
    let Convolution { batch, groups, channels, filters, image, window, result, .. } = *convolution;
    let Convolution { stride, padding, dilation, .. } = *convolution;
    let along = |axis: usize| {
        let reach = dilation[axis] * window[axis].saturating_sub(1) + 1;
        (image[axis] + 2 * padding[axis]).checked_sub(reach).map(|it| it / stride[axis] + 1)
    };
    let is_empty = [batch, groups, channels, filters, window[0], window[1]].contains(&0);
    !is_empty && [0, 1].iter().all(|&axis| along(axis) == Some(result[axis]))
}

/// Whether cuDNN says that it cannot, and not that something broke: codes from 2000 are about what it was asked, from 3000 about what it has.
fn is_refusal(CudnnError(status): CudnnError) -> bool {
    (2000..4000).contains(&(status as u32))
}

/// What cuDNN says of a failure.
fn fault(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
