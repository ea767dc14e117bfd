//! Convolutions by cuDNN.
//!
//! A convolution is an operation of cuDNN's graph API. A bias and ReLU after it, or the gradient of
//! ReLU, can be further operations of the graph. cuDNN's heuristics rank engines for the graph with
//! them and for the one without, after which a kernel computes the rest. Measurements choose.
//!
//! Operands and result have one element type. For `f32` gradients of `bf16` filters, cuDNN
//! accumulates in `f32`, writes `bf16` to the workspace, and a copy converts to `f32`: its engines
//! that write `f32` take up to thirty times as long on an H100. Tensors have the layout of the
//! program, which suits tensor cores where the compiler chose it so.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

mod autotune;
mod epilogue;
mod operation;
mod result_conversion;

use soybean_codegen::Address;
use soybean_plan::{Convolution, ConvolutionForm, DType, Precision};

use self::operation::{ConvolutionOperations, OPERANDS};
pub(crate) use self::{
    epilogue::{epilogue_map, takes_epilogue},
    result_conversion::ResultConversion,
};
use super::{
    cudnn::{
        self as sys, CudnnError,
        engines::{Engine, Plan, engines},
        graph::{
            CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
            CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
            CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
            CUDNN_NUMERICAL_NOTE_WINOGRAD, HeuristicMode, NumericalNote,
        },
        handle::{Cudnn, cudnn_error, is_refusal},
    },
    epilogue::{Epilogue, Function},
    generated_operations::Remaining,
    stream::Stream,
};
use crate::Error;

/// A convolution of a program with the engines that can compute it.
pub(crate) struct ConvolutionPlan {
    /// Engines in cuDNN's order, those that apply the epilogue first. After the choice, only the
    /// chosen one.
    candidates: Vec<Candidate>,
    precision: Precision,
    /// Maximum workspace in bytes of an engine.
    max_workspace_bytes: usize,
    conversion: Option<ResultConversion>,
}

/// Device addresses of the operands of a convolution, in the order of the kernel's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionOperands {
    pub(crate) left: u64,
    pub(crate) right: u64,
    /// The place that [`ConvolutionPlan::result`] gives.
    pub(crate) result: u64,
    /// The third input of the epilogue, or 0.
    pub(crate) third: u64,
}

/// An engine for a convolution.
struct Candidate {
    engine: Engine,
    /// True if the engine applies the epilogue.
    has_epilogue: bool,
}

/// Limits of the choice of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvolutionLimits {
    pub(crate) precision: Precision,
    /// Maximum workspace in bytes, with that of the conversion.
    pub(crate) max_workspace_bytes: usize,
}

/// The maximum number of engines for the convolution alone.
const MAX_PLAIN: usize = 6;
/// The maximum number of engines that apply the epilogue.
const MAX_FUSED: usize = 6;
/// The maximum number of engines of a graph that compile a kernel.
const MAX_COMPILED: usize = 3;

impl ConvolutionPlan {
    /// Plans the convolution for these element types of the two inputs and the result. Returns
    /// `None` if cuDNN has no deterministic engine for it within the limits.
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
        cudnn.gpu().bind()?;
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
        let n_elements = result_extents(convolution).iter().product();
        let conversion = ResultConversion::new(n_elements, [dtype, result]);
        let converted_bytes = conversion.as_ref().map_or(0, ResultConversion::workspace_bytes);
        let max_workspace_bytes = limits.max_workspace_bytes.saturating_sub(converted_bytes);
        let engines = ConvolutionEngines { cudnn, convolution, dtype, precision: limits.precision };
        let mut this = Self {
            candidates: engines.ranked(epilogue)?,
            precision: limits.precision,
            max_workspace_bytes,
            conversion,
        };
        if limits.precision == Precision::F32 || !this.is_possible(cudnn) {
            let is_known = |number| this.candidates.iter().any(|it| it.engine.number == number);
            let simple = engines.simple()?.filter(|it| !is_known(it.engine.number));
            this.candidates.extend(simple);
        }
        Ok(this.is_possible(cudnn).then_some(this))
    }

    /// Returns true if an engine has a plan. Plans of the convolution alone are made sooner.
    fn is_possible(&self, cudnn: &Cudnn) -> bool {
        (0..self.candidates.len()).rev().any(|it| self.plan(it, cudnn).is_some())
    }

    /// Returns the plan of an engine, if there is one within the limit of workspace.
    fn plan(&self, number: usize, cudnn: &Cudnn) -> Option<&Plan> {
        let plan = self.candidates.get(number)?.engine.plan(cudnn)?;
        Some(plan).filter(|it| it.workspace_bytes <= self.max_workspace_bytes)
    }

    /// Chooses the first engine that has a plan.
    pub(crate) fn choose_first(&mut self, cudnn: &Cudnn) {
        let first = (0..self.candidates.len()).find(|it| self.plan(*it, cudnn).is_some());
        self.choose(first.unwrap_or(0));
    }

    fn choose(&mut self, number: usize) {
        let chosen = self.candidates.swap_remove(number);
        self.candidates = vec![chosen];
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
        let plan = self.candidates[0].engine.made_plan();
        self.converted_bytes() + plan.map_or(0, |it| it.workspace_bytes)
    }

    fn converted_bytes(&self) -> usize {
        self.conversion.as_ref().map_or(0, ResultConversion::workspace_bytes)
    }

    /// Queues the convolution by the chosen engine.
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
        // SAFETY: required of the caller.
        unsafe { self.run_candidate(0, cudnn, operands, workspace) }.map_err(run_error)
    }

    /// Queues the convolution on the stream of the handle, by the engine of this number.
    ///
    /// # Safety
    /// As [`Self::run`], with the workspace of that engine.
    unsafe fn run_candidate(
        &self,
        number: usize,
        cudnn: &Cudnn,
        ConvolutionOperands { left, right, result, third }: ConvolutionOperands,
        workspace: u64,
    ) -> Result<Remaining, CudnnError> {
        let plan = self.plan(number, cudnn).ok_or(sys::NOT_SUPPORTED)?;
        let has_epilogue = self.candidates[number].has_epilogue;
        let n_operands = if has_epilogue { 4 } else { 3 };
        let pointers = [left, right, result, third].map(|it| it as *mut _);
        let tensors = OPERANDS.into_iter().zip(pointers).take(n_operands);
        let workspace = workspace + self.converted_bytes() as u64;
        // SAFETY: required of the caller.
        unsafe { plan.run(cudnn, tensors, workspace) }?;
        Ok(if has_epilogue { Remaining::Nothing } else { Remaining::Operations })
    }
}

/// A convolution and the engines that cuDNN has for it.
struct ConvolutionEngines<'a> {
    cudnn: &'a Cudnn,
    convolution: &'a Convolution,
    dtype: DType,
    precision: Precision,
}

impl ConvolutionEngines<'_> {
    /// Returns the first engines in cuDNN's order, those that apply the epilogue first.
    fn ranked(&self, epilogue: Epilogue) -> Result<Vec<Candidate>, CudnnError> {
        let function = Some(epilogue.function).filter(|_| !epilogue.is_plain());
        let fused = function.map(|it| self.engines(Some(it), CUDNN_HEUR_MODE_A));
        let fused = match fused.transpose() {
            // cuDNN need not know the graph with the epilogue.
            Err(error) if is_refusal(error) => None,
            found => found?,
        };
        let fused = fused.into_iter().flatten().take(MAX_FUSED);
        let plain = self.engines(None, CUDNN_HEUR_MODE_A)?.take(MAX_PLAIN);
        Ok(fused.chain(plain).collect())
    }

    /// Returns the first engine of those that cuDNN has for all convolutions. Others of them can
    /// take seconds where ranked engines take milliseconds. In `f32` it is the only one for some
    /// convolutions, and cuDNN does not rank it.
    fn simple(&self) -> Result<Option<Candidate>, CudnnError> {
        Ok(self.engines(None, CUDNN_HEUR_MODE_FALLBACK)?.next())
    }

    /// Returns the engines of a heuristic for the convolution with this function after it.
    fn engines(
        &self,
        function: Option<Function>,
        heuristic: u32,
    ) -> Result<impl Iterator<Item = Candidate>, CudnnError> {
        let &Self { cudnn, convolution, dtype, precision } = self;
        let operations = ConvolutionOperations { convolution, dtype };
        let operations = match function {
            Some(function) => operations.with_epilogue(function)?,
            None => operations.plain()?,
        };
        let name = cudnn.name_of(&(convolution, dtype, function));
        let unwanted = unwanted_notes(precision);
        let found = engines(&operations, &name, cudnn, HeuristicMode(heuristic), &unwanted)?;
        let mut n_compiled = 0;
        let few_compiled = move |it: &Engine| {
            n_compiled += usize::from(it.is_compiled);
            !it.is_compiled || n_compiled <= MAX_COMPILED
        };
        let candidate = move |engine| Candidate { engine, has_epilogue: function.is_some() };
        Ok(found.into_iter().filter(few_compiled).map(candidate))
    }
}

/// Returns the notes of engines that are not taken: results must be reproducible bit by bit, sums
/// are in single precision, and operands are not converted. In `f32` tensor cores, which round to
/// `tf32`, are not taken, nor are transforms: they multiply sums of pixels, whose errors are larger
/// than those of single precision. Source: Lavin & Gray 2016.
fn unwanted_notes(precision: Precision) -> Vec<NumericalNote> {
    let always = [
        CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
        CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    ];
    let single =
        [CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD];
    let single = if precision == Precision::F32 { &single[..] } else { &[] };
    always.iter().chain(single).map(|it| NumericalNote(*it)).collect()
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

/// Returns the extents of what a convolution computes, with channels first.
const fn result_extents(convolution: &Convolution) -> [usize; 4] {
    let [images, filters, results] = extents(convolution);
    match convolution.form {
        ConvolutionForm::Forward => results,
        ConvolutionForm::Data => images,
        ConvolutionForm::Filter => filters,
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

/// Converts an error of a convolution that was to run.
fn run_error(error: CudnnError) -> Error {
    cudnn_error("a convolution", error)
}

#[cfg(test)]
mod tests;
