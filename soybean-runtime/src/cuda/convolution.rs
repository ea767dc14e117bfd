//! Convolutions by cuDNN.
//!
//! cuDNN requires one element type for images, filters and results. For `f32` gradients of `bf16`
//! filters, cuDNN accumulates in `f32`, writes `bf16` to the workspace, and a copy converts to
//! `f32`. cuDNN's documentation lists no `bf16` convolution with `f32` results. Tensors have the
//! layout of the program, which suits tensor cores where the compiler chose it so.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

mod algorithm;
mod autotune;
mod descriptor;
mod epilogue;
mod result_conversion;

use std::sync::Arc;

use soybean_codegen::Address;
use soybean_plan::{Convolution, ConvolutionForm, DType, Precision};

use self::{
    algorithm::{Algorithm, Descriptors, TensorPointers},
    descriptor::{ConvolutionDescriptor, FilterDescriptor, TensorDescriptor},
    epilogue::ConvolutionEpilogue,
};
pub(crate) use self::{
    epilogue::{epilogue_map, takes_epilogue},
    result_conversion::ResultConversion,
};
use super::{
    capture_lock::not_capturing,
    cudnn::{self as sys, CudnnError, cudnnMathType_t as Math},
    epilogue::Epilogue,
    gpu::Gpu,
    libraries::installation,
    stream::Stream,
};
use crate::{Error, ErrorKind};

/// A cuDNN handle of one GPU.
pub(crate) struct Cudnn {
    gpu: Arc<Gpu>,
    raw: sys::cudnnHandle_t,
}

// SAFETY: a handle may be used from any thread, one at a time, whose current context is the
// handle's. Every call here makes it current.
unsafe impl Send for Cudnn {}

impl Cudnn {
    /// Creates a cuDNN handle for a GPU.
    ///
    /// # Errors
    /// If cuDNN is missing or does not support the GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        installation().cudnn()?;
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let _no_capture = not_capturing();
        // SAFETY: the result is a place of this function.
        let made = unsafe { sys::cudnnCreate(&mut raw) };
        made.result().map_err(|error| cudnn_error(&format!("starting cuDNN on {gpu:?}"), error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) const fn raw(&self) -> sys::cudnnHandle_t {
        self.raw
    }

    /// Makes the later calls with this handle queue work on a stream.
    pub(crate) fn set_stream(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are alive.
        let set = unsafe { sys::cudnnSetStream(self.raw, raw.cast()) };
        set.result().map_err(|error| cudnn_error("choosing a stream", error))
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: made in `new`. After a fatal error cuDNN refuses, and there is nothing left
            // to destroy.
            let _refused = unsafe { sys::cudnnDestroy(self.raw) };
        }
    }
}

/// A convolution of a program with its descriptors and algorithms.
pub(crate) struct ConvolutionPlan {
    descriptors: Descriptors,
    /// Algorithms within the limits, in cuDNN's order, and the number of the one to run. With an
    /// epilogue, the first is the call that applies it.
    candidates: Vec<Candidate>,
    chosen: usize,
    epilogue: Option<ConvolutionEpilogue>,
    conversion: Option<ResultConversion>,
}

/// Device addresses of the operands of a convolution, in the order of the kernel's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionOperands {
    pub(crate) left: u64,
    pub(crate) right: u64,
    /// The place that [`ConvolutionPlan::result`] gives.
    pub(crate) result: u64,
    /// The bias of the epilogue, or 0.
    pub(crate) bias: u64,
}

/// The operations that a queued convolution leaves to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    Nothing,
    /// The conversion of the result, or the epilogue, if the plan has one of them.
    Operations,
}

/// An algorithm for a convolution.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    algorithm: Algorithm,
    math: Math,
    /// True if the call applies the epilogue.
    has_epilogue: bool,
    /// Workspace of the algorithm alone.
    workspace_bytes: usize,
}

// SAFETY: this value owns its descriptors.
unsafe impl Send for ConvolutionPlan {}

/// Limits of the choice of an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionLimits {
    pub(crate) precision: Precision,
    /// Maximum workspace in bytes, with that of the conversion.
    pub(crate) max_workspace_bytes: usize,
}

impl ConvolutionPlan {
    /// Plans the convolution for these element types of the two inputs and the result. Returns
    /// `None` if cuDNN has no deterministic algorithm for it within the limits.
    ///
    /// # Errors
    /// If cuDNN fails.
    pub(crate) fn new(
        cudnn: &Cudnn,
        convolution: &Convolution,
        types: [DType; 3],
        epilogue: Epilogue,
        limits: ConvolutionLimits,
    ) -> Result<Option<Self>, Error> {
        cudnn.gpu.bind()?;
        let usual = Some(convolution).filter(|it| has_standard_extents(it));
        let Some(compute_type) = usual.and_then(|it| compute_type(it.form, types)) else {
            return Ok(None);
        };
        match Self::with(cudnn, convolution, [compute_type, types[2]], epilogue, limits) {
            Ok(plan) => Ok(plan),
            // A generated kernel computes the convolution.
            Err(error) if is_refusal(error) => Ok(None),
            Err(error) => Err(cudnn_error("planning a convolution", error)),
        }
    }

    fn with(
        cudnn: &Cudnn,
        convolution: &Convolution,
        [dtype, result]: [DType; 2],
        epilogue: Epilogue,
        limits: ConvolutionLimits,
    ) -> Result<Option<Self>, CudnnError> {
        let (layout, math) = (convolution.layout, math(dtype, limits.precision));
        let [images, filters, results] = extents(convolution);
        let written = match convolution.form {
            ConvolutionForm::Forward => results,
            ConvolutionForm::Data => images,
            ConvolutionForm::Filter => filters,
        };
        let conversion = ResultConversion::new(written.iter().product(), [dtype, result]);
        let converted_bytes = conversion.as_ref().map_or(0, ResultConversion::workspace_bytes);
        let max_bytes = limits.max_workspace_bytes.saturating_sub(converted_bytes);
        let descriptors = Descriptors {
            images: TensorDescriptor::new(dtype, layout, images)?,
            filters: FilterDescriptor::new(dtype, layout, filters)?,
            results: TensorDescriptor::new(dtype, layout, results)?,
            convolution: ConvolutionDescriptor::new(convolution, math)?,
        };
        let mut candidates = Vec::new();
        for (algorithm, suited) in Algorithm::ranked(cudnn.raw, convolution.form, &descriptors)? {
            if math == Math::CUDNN_FMA_MATH && algorithm.transforms_numbers() {
                continue;
            }
            // An algorithm must not lower the precision that was asked for.
            let math = if math == Math::CUDNN_FMA_MATH { math } else { suited };
            descriptors.convolution.set_math(math)?;
            match algorithm.workspace_bytes(cudnn.raw, &descriptors) {
                Ok(workspace_bytes) if workspace_bytes <= max_bytes => {
                    let has_epilogue = false;
                    candidates.push(Candidate { algorithm, math, has_epilogue, workspace_bytes });
                }
                Ok(_) => {}
                Err(error) if is_refusal(error) => {}
                Err(error) => return Err(error),
            }
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        let epilogue = match epilogue.is_plain() {
            true => None,
            false => {
                ConvolutionEpilogue::new(convolution, dtype, epilogue.function, &mut candidates)?
            }
        };
        Ok(Some(Self { descriptors, candidates, chosen: 0, epilogue, conversion }))
    }

    /// Returns the conversion of the result that follows [`Self::run`].
    pub(crate) const fn conversion(&self) -> Option<&ResultConversion> {
        self.conversion.as_ref()
    }

    /// Returns the location of the result that [`Self::run`] writes.
    pub(crate) fn result(&self) -> Address {
        self.conversion.as_ref().map_or(Address::Result(0), |_| ResultConversion::FROM)
    }

    /// Returns the workspace in bytes of [`Self::run`] and of the conversion.
    pub(crate) fn workspace_bytes(&self) -> usize {
        let used =
            self.candidates[self.chosen..].iter().take(1 + usize::from(self.may_be_refused()));
        self.converted_bytes() + used.map(|it| it.workspace_bytes).max().unwrap_or(0)
    }

    fn converted_bytes(&self) -> usize {
        self.conversion.as_ref().map_or(0, ResultConversion::workspace_bytes)
    }

    /// Returns true if cuDNN may refuse the chosen call. The next candidate runs then.
    fn may_be_refused(&self) -> bool {
        self.candidates[self.chosen].has_epilogue
    }

    /// Queues the convolution, with its epilogue if that is chosen and cuDNN does not refuse it.
    ///
    /// # Safety
    /// The plan was made with this handle, and the stream belongs to the same GPU. Until the
    /// convolution completes, the addresses hold the tensors that the plan describes. Nothing else
    /// uses the result or the workspace, which has [`Self::workspace_bytes`] bytes.
    pub(crate) unsafe fn run(
        &self,
        cudnn: &Cudnn,
        stream: &Stream,
        operands: ConvolutionOperands,
        workspace: u64,
    ) -> Result<Remaining, Error> {
        cudnn.set_stream(stream)?;
        let is_refused = self.epilogue.as_ref().is_some_and(ConvolutionEpilogue::is_refused);
        let number = self.chosen + usize::from(self.may_be_refused() && is_refused);
        // SAFETY: required of the caller.
        match unsafe { self.run_candidate(number, cudnn, operands, workspace) } {
            Ok(remaining) => Ok(remaining),
            Err(error) if is_refusal(error) && number == self.chosen && self.may_be_refused() => {
                self.epilogue.iter().for_each(ConvolutionEpilogue::refuse);
                // SAFETY: required of the caller.
                unsafe { self.run(cudnn, stream, operands, workspace) }
            }
            Err(error) => Err(run_error(error)),
        }
    }

    /// Queues the convolution on the stream of the handle, by the algorithm of this number.
    ///
    /// # Safety
    /// As [`Self::run`], with the workspace of that algorithm.
    unsafe fn run_candidate(
        &self,
        number: usize,
        cudnn: &Cudnn,
        operands: ConvolutionOperands,
        workspace: u64,
    ) -> Result<Remaining, CudnnError> {
        let pointers = self.prepared(number, operands, workspace)?;
        match (&self.epilogue, self.candidates[number]) {
            (Some(epilogue), Candidate { has_epilogue: true, .. }) => {
                // SAFETY: required of the caller.
                unsafe { epilogue.run(cudnn.raw, &self.descriptors, pointers) }?;
                Ok(Remaining::Nothing)
            }
            (_, Candidate { algorithm, .. }) => {
                // SAFETY: required of the caller.
                unsafe { algorithm.run(cudnn.raw, &self.descriptors, pointers) }?;
                Ok(Remaining::Operations)
            }
        }
    }

    /// Prepares the descriptors for an algorithm. Returns the pointers for it.
    fn prepared(
        &self,
        number: usize,
        ConvolutionOperands { left, right, result, bias }: ConvolutionOperands,
        workspace: u64,
    ) -> Result<TensorPointers, CudnnError> {
        let Candidate { math, workspace_bytes, .. } = self.candidates[number];
        self.descriptors.convolution.set_math(math)?;
        Ok(TensorPointers {
            left: left as *const _,
            right: right as *const _,
            bias: bias as *const _,
            result: result as *mut _,
            workspace: (workspace + self.converted_bytes() as u64) as *mut _,
            workspace_bytes,
        })
    }
}

/// Returns the element type in which cuDNN computes for operands of these types. `None` if there is
/// no such convolution.
fn compute_type(form: ConvolutionForm, types: [DType; 3]) -> Option<DType> {
    match types {
        [DType::F32, DType::F32, DType::F32] => Some(DType::F32),
        [DType::Bf16, DType::Bf16, DType::Bf16] => Some(DType::Bf16),
        [DType::Bf16, DType::Bf16, DType::F32] => {
            (form == ConvolutionForm::Filter).then_some(DType::Bf16)
        }
        _ => None,
    }
}

/// Returns the extents of images, filters and results, with channels first.
const fn extents(convolution: &Convolution) -> [[usize; 4]; 3] {
    let Convolution { batch, groups, channels, filters, image, window, result, .. } = *convolution;
    [
        [batch, groups * channels, image[0], image[1]],
        [groups * filters, channels, window[0], window[1]],
        [batch, groups * filters, result[0], result[1]],
    ]
}

/// Returns the math type of a convolution. All sums are in single precision.
fn math(compute_type: DType, precision: Precision) -> Math {
    match (compute_type, precision) {
        (DType::Bf16, _) => Math::CUDNN_TENSOR_OP_MATH,
        (_, Precision::F32) => Math::CUDNN_FMA_MATH,
        (_, Precision::Tf32 | Precision::Bf16) => Math::CUDNN_DEFAULT_MATH,
    }
}

/// Returns true if cuDNN computes the same result extents.
fn has_standard_extents(convolution: &Convolution) -> bool {
    let Convolution { batch, groups, channels, filters, image, window, result, .. } = *convolution;
    let Convolution { stride, padding, dilation, .. } = *convolution;
    let along = |axis: usize| {
        let reach = dilation[axis] * window[axis].saturating_sub(1) + 1;
        (image[axis] + 2 * padding[axis]).checked_sub(reach).map(|it| it / stride[axis] + 1)
    };
    let is_empty = [batch, groups, channels, filters, window[0], window[1]].contains(&0);
    !is_empty && [0, 1].iter().all(|&axis| along(axis) == Some(result[axis]))
}

/// Returns true if cuDNN rejects the request, rather than failing. Codes from 2000 are bad
/// parameters, and codes from 3000 are unsupported requests.
fn is_refusal(CudnnError(status): CudnnError) -> bool {
    (2000..4000).contains(&status.0)
}

/// Converts an error of a convolution that was to run.
fn run_error(error: CudnnError) -> Error {
    cudnn_error("a convolution", error)
}

/// Converts an error of cuDNN.
pub(crate) fn cudnn_error(what: &str, error: CudnnError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
