//! Kernel calls that libraries compute.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use soybean_codegen::Address;
use soybean_plan::Kernel;

use super::{
    attention::{self, AttentionOperands, AttentionPlan},
    autotune::Autotuner,
    convolution::{ConvolutionLimits, ConvolutionOperands, ConvolutionPlan},
    cudnn::handle::Cudnn,
    generated_operations::{GeneratedOperations, Remaining},
    kernels::KernelOperands,
    matmul::{self, CublasLt, MatmulPlan},
    source::{GeneratedParts, KernelCall, KernelRequests, RemainingPart},
    stream::Stream,
};
use crate::{Error, ErrorKind};

/// A call that cuBLASLt or cuDNN computes.
pub(crate) enum LibraryCall {
    Matmul(Box<MatmulPlan>),
    Convolution(Box<ConvolutionPlan>),
    Attention(Box<AttentionPlan>),
}

impl LibraryCall {
    /// Plans the call with cuBLASLt or cuDNN. Returns `None` if neither supports it.
    pub(crate) fn new(
        cublaslt: &CublasLt,
        cudnn: Option<&Cudnn>,
        requests: &KernelRequests<'_>,
        call: &KernelCall,
        is_measured: bool,
    ) -> Result<Option<Self>, Error> {
        let (&[left, right, ..], &[result, ..]) = (&call.inputs[..], &call.results[..]) else {
            return Ok(None);
        };
        let (types, precision) = ([left, right, result], requests.precision);
        match (&requests.kernels[call.kernel], cudnn) {
            (Kernel::Contract(contraction), _) => {
                let mut matmul =
                    MatmulPlan::new(cublaslt, contraction, types, precision, call.epilogue)?;
                if let Some(matmul) = matmul.as_mut().filter(|_| is_measured) {
                    matmul.add_alternatives(cublaslt, requests.max_workspace_bytes)?;
                }
                Ok(matmul.map(|it| Self::Matmul(Box::new(it))))
            }
            (Kernel::Convolve(convolution), Some(cudnn)) => {
                let max_workspace_bytes = requests.max_workspace_bytes;
                let limits = ConvolutionLimits { precision, max_workspace_bytes };
                let mut plan =
                    ConvolutionPlan::new(cudnn, convolution, types, call.epilogue, limits)?;
                if let Some(plan) = plan.as_mut().filter(|_| !is_measured) {
                    plan.choose_first(cudnn);
                }
                Ok(plan.map(|it| Self::Convolution(Box::new(it))))
            }
            // Only a measurement can prefer a plan of cuDNN to the generated kernel.
            (Kernel::Attend(attention), Some(cudnn)) if is_measured => {
                let max_workspace_bytes = requests.max_workspace_bytes;
                let types = (&call.inputs[..], result);
                let plan = AttentionPlan::new(cudnn, attention, types, max_workspace_bytes);
                Ok(plan.map(|it| Self::Attention(Box::new(it))))
            }
            _ => Ok(None),
        }
    }

    /// Returns the workspace of [`Self::run`] in bytes.
    pub(crate) fn workspace_bytes(&self) -> usize {
        match self {
            Self::Matmul(it) => it.workspace_bytes(),
            Self::Convolution(it) => it.workspace_bytes(),
            Self::Attention(it) => it.workspace_bytes(),
        }
    }

    /// Queues the library call on a stream. Returns what it leaves to the generated part.
    ///
    /// # Safety
    /// As [`GpuKernels::run`](super::kernels::GpuKernels::run), with the handles that the call was
    /// made with.
    pub(crate) unsafe fn run(
        &self,
        (cublaslt, cudnn): (&CublasLt, Option<&Cudnn>),
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<Remaining, Error> {
        let input = |number: usize| operands.address(Address::Input(number));
        let [left, right] = [input(0)?, input(1)?];
        match (self, cudnn) {
            (Self::Matmul(matmul), _) => {
                let (result, aux) = (operands.address(Address::Result(0))?, operands.aux);
                let bias = operands.results.get(1).copied().unwrap_or(operands.bias);
                let at = matmul::MatmulOperands { left, right, result, bias, aux };
                // SAFETY: required of the caller.
                unsafe { matmul.run(cublaslt, stream, at, operands.workspace) }
            }
            (Self::Convolution(plan), Some(cudnn)) => {
                let result = operands.address(plan.result())?;
                let third = operands.inputs.get(2).copied().unwrap_or(0);
                let at = ConvolutionOperands { left, right, result, third };
                // SAFETY: required of the caller.
                unsafe { plan.run(cudnn, stream, at, operands.workspace) }
            }
            (Self::Attention(plan), Some(cudnn)) => {
                let at = AttentionOperands { inputs: operands.inputs, results: operands.results };
                // SAFETY: required of the caller.
                unsafe { plan.run(cudnn, stream, at, operands.workspace) }?;
                Ok(Remaining::Nothing)
            }
            (Self::Convolution(_) | Self::Attention(_), None) => {
                Err(Error::new(ErrorKind::Program, "expected cuDNN, with which the plan was made"))
            }
        }
    }
}

/// Returns the parts of a call that are generated as source, if a library computes it or not.
pub(crate) fn generated_parts<'a>(
    library_call: Option<&'a LibraryCall>,
    requests: &KernelRequests<'_>,
    call: &KernelCall,
    is_measured: bool,
) -> GeneratedParts<'a> {
    let remaining = match library_call {
        Some(LibraryCall::Matmul(_)) if is_measured && call.epilogue.summed_operand().is_some() => {
            RemainingPart::Sums
        }
        None | Some(LibraryCall::Matmul(_) | LibraryCall::Attention(_)) => RemainingPart::Nothing,
        Some(LibraryCall::Convolution(_)) if !call.epilogue.is_plain() => RemainingPart::Epilogue,
        Some(LibraryCall::Convolution(it)) => {
            it.conversion().map_or(RemainingPart::Nothing, RemainingPart::Conversion)
        }
    };
    let n_variants = match (library_call, &requests.kernels[call.kernel]) {
        (None | Some(LibraryCall::Attention(_)), Kernel::Attend(it)) if is_measured => {
            attention::n_variants(it, requests, call)
        }
        (Some(LibraryCall::Convolution(_)), Kernel::Convolve(it)) => {
            let what = call.described(requests);
            usize::from(is_measured && ConvolutionPlan::has_rival(it, &what))
        }
        (Some(_), _) => 0,
        (None, _) => 1,
    };
    GeneratedParts { remaining, n_variants }
}

/// The computation of a call: by a library, or by a variant of the generated kernel.
pub(crate) enum Chosen {
    Library(LibraryCall),
    Variant(usize),
}

/// Chooses between the algorithms of a call and the variants of the generated kernel by
/// measurement.
pub(crate) fn choose(
    library_call: Option<LibraryCall>,
    (requests, call): (&KernelRequests<'_>, &KernelCall),
    (cublaslt, cudnn): (&CublasLt, Option<&Cudnn>),
    tuner: &mut Autotuner<'_>,
    generated: &GeneratedOperations,
) -> Result<Chosen, Error> {
    match (library_call, &requests.kernels[call.kernel], cudnn) {
        (Some(LibraryCall::Matmul(mut plan)), Kernel::Contract(contraction), _) => {
            plan.autotune(cublaslt, tuner, contraction, generated)?;
            Ok(Chosen::Library(LibraryCall::Matmul(plan)))
        }
        (Some(LibraryCall::Convolution(plan)), Kernel::Convolve(convolution), Some(cudnn)) => {
            let types = [call.inputs[0], call.inputs[1], call.results[0]];
            let what = (convolution, types, call.epilogue);
            let chosen = plan.autotune(cudnn, tuner, what, generated)?;
            let library = |it| Chosen::Library(LibraryCall::Convolution(Box::new(it)));
            Ok(chosen.map_or(Chosen::Variant(0), library))
        }
        (None, Kernel::Attend(attention), _) => {
            let plans = None::<(&Cudnn, AttentionPlan)>;
            attention::autotune(attention, call, plans, tuner, generated)
        }
        (Some(LibraryCall::Attention(plan)), Kernel::Attend(attention), Some(cudnn)) => {
            attention::autotune(attention, call, Some((cudnn, *plan)), tuner, generated)
        }
        (Some(made), ..) => Ok(Chosen::Library(made)),
        (None, ..) => Ok(Chosen::Variant(0)),
    }
}
