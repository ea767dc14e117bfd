//! Kernels of a model on one GPU: generated functions and plans of libraries.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::{num::NonZero, sync::Arc, thread};

use soybean_codegen::{self as codegen, Address};
use soybean_plan::Kernel;

use super::{
    attention::{AttentionOperands, AttentionPlan},
    autotune::{Autotuner, Choices},
    compile::Compiler,
    convolution::{ConvolutionLimits, ConvolutionOperands, ConvolutionPlan, Cudnn, Remaining},
    gpu::Gpu,
    libraries::installation,
    matmul::{self, CublasLt, MatmulPlan},
    memory::fill,
    module::{Function, LaunchConfig, Module},
    peers::Peers,
    source::{GeneratedParts, KernelCall, KernelRequests, ModelSource, RemainingPart, SourcePart},
    stream::Stream,
};
use crate::{Error, ErrorKind};

/// All kernels of a model on one GPU.
pub(crate) struct GpuKernels {
    calls: Vec<PreparedCall>,
    transfers: Vec<Function>,
    cublaslt: CublasLt,
    cudnn: Option<Cudnn>,
    /// Own the functions.
    _modules: Vec<Module>,
    workspace_bytes: usize,
}

/// A kernel call: the library call, if there is one, and generated operations.
struct PreparedCall {
    library_call: Option<LibraryCall>,
    generated: GeneratedOperations,
}

/// The generated operations of a call.
pub(crate) struct GeneratedOperations {
    /// The operations that a library call leaves.
    remaining: Vec<DeviceOperation>,
    /// The whole kernel, unless a library certainly computes it.
    whole: Vec<DeviceOperation>,
    /// The workspace of the whole kernel in bytes.
    pub(crate) whole_bytes: usize,
}

impl GeneratedOperations {
    /// Queues what a library call leaves.
    ///
    /// # Safety
    /// As [`GpuKernels::run`].
    pub(crate) unsafe fn run_remaining(
        &self,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        self.remaining.iter().try_for_each(|it| unsafe { it.run(stream, operands) })
    }

    /// Queues the whole kernel.
    ///
    /// # Safety
    /// As [`GpuKernels::run`].
    pub(crate) unsafe fn run_whole(
        &self,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        self.whole.iter().try_for_each(|it| unsafe { it.run(stream, operands) })
    }
}

/// A call that cuBLASLt or cuDNN computes.
enum LibraryCall {
    Matmul(Box<MatmulPlan>),
    Convolution(Box<ConvolutionPlan>),
    Attention(Box<AttentionPlan>),
}

enum DeviceOperation {
    Launch { function: Function, threads: LaunchConfig, arguments: Vec<Address> },
    Fill { target: Address, n_bytes: usize, value: u8 },
}

/// Addresses of a kernel's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelOperands<'a> {
    pub(crate) inputs: &'a [u64],
    pub(crate) results: &'a [u64],
    pub(crate) scalars: u64,
    pub(crate) workspace: u64,
    /// Bias and auxiliary buffer of a product's epilogue.
    pub(crate) bias: u64,
    pub(crate) aux: u64,
}

impl KernelOperands<'_> {
    pub(crate) fn address(&self, which: Address) -> Result<u64, Error> {
        let found = match which {
            Address::Input(number) => self.inputs.get(number).copied(),
            Address::Result(number) => self.results.get(number).copied(),
            Address::Scalars => Some(self.scalars),
            Address::Workspace(offset) => Some(self.workspace + offset as u64),
        };
        found.ok_or_else(|| {
            let (n_inputs, n_results) = (self.inputs.len(), self.results.len());
            let message = format!(
                "expected one of {n_inputs} inputs and {n_results} results, found {which:?}"
            );
            Error::new(ErrorKind::Program, message)
        })
    }
}

impl GpuKernels {
    /// Prepares the kernels of each GPU. The algorithms of libraries are measured if that is asked
    /// for, by all processes at the same time.
    pub(crate) fn of_all(
        gpus: &[Arc<Gpu>],
        requests: &KernelRequests<'_>,
        autotunes: bool,
        peers: &Arc<dyn Peers>,
    ) -> Result<Vec<Self>, Error> {
        let kernels = format!("{autotunes} {}", requests.description(gpus));
        let choices = Choices::read(&versions()?, &kernels, peers)?;
        let mut choices = choices.filter(|_| autotunes);
        let mut compiler = Compiler::default();
        let kernels = gpus
            .iter()
            .map(|gpu| Self::new(gpu, &mut compiler, requests, choices.as_mut()))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(choices) = choices {
            choices.write();
        }
        Ok(kernels)
    }

    /// Plans the library calls, compiles the generated source and loads it. With `choices`, the
    /// algorithms of libraries are measured.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        compiler: &mut Compiler,
        requests: &KernelRequests<'_>,
        choices: Option<&mut Choices>,
    ) -> Result<Self, Error> {
        let mut tuner = choices.map(|it| Autotuner::new(gpu, it)).transpose()?;
        let cublaslt = CublasLt::new(gpu)?;
        let cudnn = installation().cudnn().is_ok().then(|| Cudnn::new(gpu)).transpose()?;
        let mut library_call = Vec::new();
        for call in requests.calls {
            let made = LibraryCall::new(&cublaslt, cudnn.as_ref(), requests, call, tuner.as_mut())?;
            library_call.push(made);
        }
        let is_measured = tuner.is_some();
        let parts = library_call.iter().zip(requests.calls).map(|(made, call)| match made {
            None => GeneratedParts { remaining: RemainingPart::Nothing, has_whole: true },
            Some(made) => made.generated_parts(requests, call, is_measured),
        });
        let parts: Vec<GeneratedParts<'_>> = parts.collect();
        let source = ModelSource::new(requests, &parts)?;
        let parts = source.parts(thread::available_parallelism().map_or(1, NonZero::get));
        let modules = modules(gpu, compiler, &parts)?;
        let module_of = |call: usize| {
            let part = parts.iter().position(|it| it.calls.contains(&call));
            &modules[part.unwrap_or(0)]
        };
        let mut calls = Vec::new();
        let mut workspace_bytes = 0;
        let calls_with_source = requests.calls.iter().zip(source.calls).enumerate();
        for (library_call, (number, (call, made))) in
            library_call.into_iter().zip(calls_with_source)
        {
            let module = module_of(number);
            let generated = GeneratedOperations {
                remaining: operations(module, made.remaining)?,
                whole: operations(module, made.whole)?,
                whole_bytes: made.whole_bytes,
            };
            let library_call = match (library_call, &cudnn, &mut tuner) {
                (Some(made), Some(cudnn), Some(tuner)) => {
                    made.autotune(cudnn, tuner, (requests, call), &generated)?
                }
                (made, ..) => made,
            };
            let n_bytes = match &library_call {
                Some(made) => made.workspace_bytes(),
                None => generated.whole_bytes,
            };
            workspace_bytes = workspace_bytes.max(n_bytes);
            calls.push(PreparedCall { library_call, generated });
        }
        let function = |name: &String| modules[0].function(name, 0);
        let transfers = requests.transfers.iter().map(function).collect::<Result<_, _>>()?;
        Ok(Self { calls, transfers, cublaslt, cudnn, _modules: modules, workspace_bytes })
    }

    /// Returns the workspace in bytes that the largest kernel needs.
    pub(crate) const fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Returns the function of a transfer.
    pub(crate) fn transfer(&self, number: usize) -> Function {
        self.transfers[number]
    }

    /// Queues a kernel on a stream.
    ///
    /// # Safety
    /// The stream belongs to the GPU of these kernels. Until the kernel completes, the addresses
    /// hold buffers as its descriptor says, on that GPU or on accessible peers. Nothing else uses
    /// the results or the workspace.
    pub(crate) unsafe fn run(
        &self,
        call: usize,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<(), Error> {
        let PreparedCall { library_call, generated } = &self.calls[call];
        let Some(library_call) = library_call else {
            // SAFETY: required of the caller.
            return unsafe { generated.run_whole(stream, operands) };
        };
        // SAFETY: required of the caller.
        match unsafe { library_call.run(self, stream, operands) }? {
            Remaining::Nothing => Ok(()),
            // SAFETY: required of the caller.
            Remaining::Operations => unsafe { generated.run_remaining(stream, operands) },
        }
    }
}

/// Compiles the parts of a model's source and loads them.
fn modules(
    gpu: &Arc<Gpu>,
    compiler: &mut Compiler,
    parts: &[SourcePart],
) -> Result<Vec<Module>, Error> {
    let texts: Vec<&str> = parts.iter().map(|it| it.text.as_str()).collect();
    let cubins = compiler.cubins(&texts, &gpu.architecture())?;
    cubins.into_iter().map(|it| Module::new(gpu, it)).collect()
}

/// Describes the versions of driver and libraries.
fn versions() -> Result<String, Error> {
    let (cublaslt, cudnn) = (installation().cublaslt()?, installation().cudnn().ok());
    let (driver, cudnn) = (installation().driver(), cudnn.map(|it| it.version));
    Ok(format!("driver {driver:?}, cuBLASLt {:?}, cuDNN {cudnn:?}", cublaslt.version))
}

impl DeviceOperation {
    /// Queues the operation on a stream.
    ///
    /// # Safety
    /// As [`GpuKernels::run`].
    unsafe fn run(&self, stream: &Stream, operands: KernelOperands<'_>) -> Result<(), Error> {
        match self {
            Self::Launch { function, threads, arguments } => {
                let arguments = arguments.iter().map(|it| operands.address(*it)).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?;
                // SAFETY: the arguments match the generated source; their targets are required of
                // the caller.
                unsafe { function.launch(stream, *threads, &arguments) }
            }
            Self::Fill { target, n_bytes, value } => {
                // SAFETY: as above.
                unsafe { fill(stream, operands.address(*target)?, *value, *n_bytes) }
            }
        }
    }
}

impl LibraryCall {
    /// Plans the call with cuBLASLt or cuDNN. Returns `None` if neither supports it.
    fn new(
        cublaslt: &CublasLt,
        cudnn: Option<&Cudnn>,
        requests: &KernelRequests<'_>,
        call: &KernelCall,
        tuner: Option<&mut Autotuner<'_>>,
    ) -> Result<Option<Self>, Error> {
        let (&[left, right, ..], &[result, ..]) = (&call.inputs[..], &call.results[..]) else {
            return Ok(None);
        };
        let (types, precision) = ([left, right, result], requests.precision);
        match (&requests.kernels[call.kernel], cudnn) {
            (Kernel::Contract(contraction), _) => {
                let mut matmul =
                    MatmulPlan::new(cublaslt, contraction, types, precision, call.epilogue)?;
                if let (Some(matmul), Some(tuner)) = (&mut matmul, tuner) {
                    matmul.autotune(cublaslt, tuner, contraction, types)?;
                }
                Ok(matmul.map(|it| Self::Matmul(Box::new(it))))
            }
            (Kernel::Convolve(convolution), Some(cudnn)) => {
                let max_workspace_bytes = requests.max_workspace_bytes;
                let limits = ConvolutionLimits { precision, max_workspace_bytes };
                let plan = ConvolutionPlan::new(cudnn, convolution, types, call.epilogue, limits)?;
                Ok(plan.map(|it| Self::Convolution(Box::new(it))))
            }
            // Only a measurement can prefer a plan of cuDNN to the generated kernel.
            (Kernel::Attend(attention), Some(cudnn)) if tuner.is_some() => {
                let max_workspace_bytes = requests.max_workspace_bytes;
                let types = (&call.inputs[..], result);
                let plan = AttentionPlan::new(cudnn, attention, types, max_workspace_bytes);
                Ok(plan.map(|it| Self::Attention(Box::new(it))))
            }
            _ => Ok(None),
        }
    }

    /// Returns the parts of the call that are generated as source.
    fn generated_parts(
        &self,
        requests: &KernelRequests<'_>,
        call: &KernelCall,
        is_measured: bool,
    ) -> GeneratedParts<'_> {
        let remaining = match self {
            Self::Matmul(_) | Self::Attention(_) => RemainingPart::Nothing,
            Self::Convolution(_) if !call.epilogue.is_plain() => RemainingPart::Epilogue,
            Self::Convolution(it) => {
                it.conversion().map_or(RemainingPart::Nothing, RemainingPart::Conversion)
            }
        };
        let has_rival = match (self, &requests.kernels[call.kernel]) {
            (Self::Convolution(_), Kernel::Convolve(it)) => ConvolutionPlan::has_rival(it),
            (Self::Attention(_), _) => true,
            _ => false,
        };
        GeneratedParts { remaining, has_whole: is_measured && has_rival }
    }

    /// Chooses between the algorithms of a call and the generated kernel by measurement. Returns
    /// `None` if the generated kernel is faster. Products have been measured before.
    fn autotune(
        self,
        cudnn: &Cudnn,
        tuner: &mut Autotuner<'_>,
        (requests, call): (&KernelRequests<'_>, &KernelCall),
        generated: &GeneratedOperations,
    ) -> Result<Option<Self>, Error> {
        match (self, &requests.kernels[call.kernel]) {
            (Self::Convolution(plan), Kernel::Convolve(convolution)) => {
                let types = [call.inputs[0], call.inputs[1], call.results[0]];
                let chosen = plan.autotune(cudnn, tuner, (convolution, types), generated)?;
                Ok(chosen.map(|it| Self::Convolution(Box::new(it))))
            }
            (Self::Attention(plan), _) => {
                let chosen = plan.autotune(cudnn, tuner, generated)?;
                Ok(chosen.map(|it| Self::Attention(Box::new(it))))
            }
            (made, _) => Ok(Some(made)),
        }
    }

    fn workspace_bytes(&self) -> usize {
        match self {
            Self::Matmul(it) => it.workspace_bytes(),
            Self::Convolution(it) => it.workspace_bytes(),
            Self::Attention(it) => it.workspace_bytes(),
        }
    }

    /// Queues the library call on a stream. Returns what it leaves to the generated part.
    ///
    /// # Safety
    /// As [`GpuKernels::run`].
    unsafe fn run(
        &self,
        kernels: &GpuKernels,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<Remaining, Error> {
        let input = |number: usize| operands.address(Address::Input(number));
        let [left, right] = [input(0)?, input(1)?];
        match (self, &kernels.cudnn) {
            (Self::Matmul(matmul), _) => {
                let (result, bias, aux) =
                    (operands.address(Address::Result(0))?, operands.bias, operands.aux);
                let at = matmul::MatmulOperands { left, right, result, bias, aux };
                // SAFETY: required of the caller.
                unsafe { matmul.run(&kernels.cublaslt, stream, at, operands.workspace) }?;
                Ok(Remaining::Nothing)
            }
            (Self::Convolution(plan), Some(cudnn)) => {
                let result = operands.address(plan.result())?;
                let bias = operands.inputs.get(2).copied().unwrap_or(0);
                let at = ConvolutionOperands { left, right, result, bias };
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

fn operations(
    module: &Module,
    made: Vec<codegen::Operation>,
) -> Result<Vec<DeviceOperation>, Error> {
    let ready = |operation| match operation {
        codegen::Operation::Launch(launch) => {
            let codegen::Launch { function, grid, block, shared_bytes, arguments } = launch;
            let function = module.function(&function, shared_bytes)?;
            let threads = LaunchConfig { grid, block, shared_bytes };
            Ok(DeviceOperation::Launch { function, threads, arguments })
        }
        codegen::Operation::Fill { target, n_bytes, value } => {
            Ok(DeviceOperation::Fill { target, n_bytes, value })
        }
    };
    made.into_iter().map(ready).collect()
}
