//! Convolutions with a bias and ReLU in one call of cuDNN.
//!
//! The call is `cudnnConvolutionBiasActivationForward`, not cuDNN's graph API: it takes the
//! descriptors, the algorithms and the workspace of the plain convolution, and a network needs no
//! other graph than this one. cuDNN's documentation lists `f32` and `bf16` tensors whose bias has
//! the same type. Without an activation it allows one algorithm only, the implicit product with
//! precomputed indices, which is also the one that tensor cores have; it is taken in both cases.
//! cuDNN may still refuse a call. A plain convolution and a map in place follow then.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

use std::{
    borrow::Cow,
    sync::atomic::{AtomicBool, Ordering},
};

use soybean_plan::{
    Binary, Convolution, ConvolutionForm, DType, ImageLayout, Instruction, Map, ScalarProgram,
    Shape, Strides, Unary,
};

use super::{
    Candidate,
    algorithm::{Algorithm, Descriptors, TensorPointers},
    compute_type,
    descriptor::{ActivationDescriptor, TensorDescriptor},
    extents, has_standard_extents,
};
use crate::cuda::{
    cudnn::{
        self as sys, CudnnError, cudnnActivationMode_t as Mode,
        cudnnConvolutionFwdAlgo_t as ForwardAlgorithm,
    },
    epilogue::{Epilogue, Function},
};

/// The algorithm of all epilogues.
const ALGORITHM: ForwardAlgorithm =
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

/// Returns true if cuDNN's documentation has a call for this convolution with this epilogue.
pub(crate) fn takes_epilogue(
    convolution: &Convolution,
    types: [DType; 3],
    epilogue: Epilogue,
) -> bool {
    let Convolution { form, layout, .. } = *convolution;
    let is_forward = form == ConvolutionForm::Forward && layout == ImageLayout::ChannelsLast;
    is_forward
        && has_standard_extents(convolution)
        && activation(epilogue.function).is_some()
        && compute_type(form, types).is_some_and(|it| epilogue.bias == Some(it))
}

/// Returns the epilogue as a map of the result and the bias, for a result with channels last.
pub(crate) fn epilogue_map(convolution: &Convolution, function: Function) -> Map {
    let [_, _, [batch, channels, height, width]] = extents(convolution);
    let extents = Shape::new(&[batch * height * width, channels]);
    let inputs = vec![extents.dense_strides(), Strides::new(&[0, 1])].into();
    let mut instructions =
        vec![Instruction::Input(0), Instruction::Input(1), Instruction::Binary(Binary::Add, 0, 1)];
    let is_relu = function == Function::Relu;
    instructions.extend(is_relu.then_some(Instruction::Unary(Unary::Relu, 2)));
    let results = Cow::Owned(vec![if is_relu { 3 } else { 2 }]);
    Map { extents, inputs, program: ScalarProgram { instructions: instructions.into(), results } }
}

fn activation(function: Function) -> Option<Mode> {
    match function {
        Function::Identity => Some(Mode::CUDNN_ACTIVATION_IDENTITY),
        Function::Relu => Some(Mode::CUDNN_ACTIVATION_RELU),
        Function::Gelu | Function::ReluAux | Function::GeluAux => None,
        Function::ReluGradient | Function::GeluGradient => None,
        Function::LeftSums | Function::RightSums => None,
    }
}

/// The epilogue of a convolution that cuDNN may apply.
pub(super) struct ConvolutionEpilogue {
    bias: TensorDescriptor,
    activation: ActivationDescriptor,
    pub(super) is_relu: bool,
    /// True after cuDNN has refused it.
    is_refused: AtomicBool,
}

impl ConvolutionEpilogue {
    /// Describes an epilogue, and makes its call the first candidate. `None` if its algorithm is no
    /// candidate.
    pub(super) fn new(
        convolution: &Convolution,
        dtype: DType,
        function: Function,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Option<Self>, CudnnError> {
        let is_needed = |it: &&Candidate| matches!(it.algorithm, Algorithm::Forward(ALGORITHM));
        let (Some(mode), Some(&needed)) = (activation(function), candidates.iter().find(is_needed))
        else {
            return Ok(None);
        };
        candidates.insert(0, Candidate { has_epilogue: true, ..needed });
        let [_, [channels, ..], _] = extents(convolution);
        Ok(Some(Self {
            bias: TensorDescriptor::new(dtype, ImageLayout::ChannelsFirst, [1, channels, 1, 1])?,
            activation: ActivationDescriptor::new(mode)?,
            is_relu: function == Function::Relu,
            is_refused: AtomicBool::new(false),
        }))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Notes that cuDNN has refused the epilogue.
    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Queues the convolution with the epilogue on the handle's stream.
    ///
    /// # Safety
    /// The pointers refer to the described tensors until the convolution completes.
    pub(super) unsafe fn run(
        &self,
        handle: sys::cudnnHandle_t,
        descriptors: &Descriptors,
        pointers: TensorPointers,
    ) -> Result<(), CudnnError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let Descriptors { images, filters, results, convolution } = descriptors;
        let TensorPointers { left, right, bias, result, workspace, workspace_bytes } = pointers;
        // SAFETY: required of the caller. The addend, whose factor is 0, is the result itself.
        let queued = unsafe {
            sys::cudnnConvolutionBiasActivationForward(
                handle,
                std::ptr::from_ref(&one).cast(),
                images.raw(),
                left,
                filters.raw(),
                right,
                convolution.raw(),
                ALGORITHM,
                workspace,
                workspace_bytes,
                std::ptr::from_ref(&zero).cast(),
                results.raw(),
                result,
                self.bias.raw(),
                bias,
                self.activation.raw(),
                results.raw(),
                result,
            )
        };
        queued.result()
    }
}
