//! Kernels of a model on one GPU: generated functions and plans of libraries.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::{num::NonZero, sync::Arc, thread};

use soybean_codegen::Address;

use super::{
    autotune::{Autotuner, Choices},
    compile::Compiler,
    cudnn::handle::Cudnn,
    generated_operations::{GeneratedOperations, Remaining},
    gpu::Gpu,
    libraries::installation,
    library_call::{Chosen, LibraryCall, choose, generated_parts},
    matmul::CublasLt,
    module::{Function, Module},
    peers::Peers,
    source::{KernelRequests, ModelSource, SourcePart},
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

/// A kernel call: how it is computed, and its generated operations.
struct PreparedCall {
    chosen: Chosen,
    generated: GeneratedOperations,
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
    /// The words of the results that must be finite.
    pub(crate) first_non_finite: &'a [u64],
}

impl<'a> KernelOperands<'a> {
    /// Returns the operands of a kernel without scalars and epilogue.
    pub(crate) const fn plain(inputs: &'a [u64], results: &'a [u64], workspace: u64) -> Self {
        Self { inputs, results, scalars: 0, workspace, bias: 0, aux: 0, first_non_finite: &[] }
    }

    pub(crate) fn address(&self, which: Address) -> Result<u64, Error> {
        let found = match which {
            Address::Input(number) => self.inputs.get(number).copied(),
            Address::Result(number) => self.results.get(number).copied(),
            Address::Scalars => Some(self.scalars),
            Address::FirstNonFinite(number) => self.first_non_finite.get(number).copied(),
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
        gpus.iter().map(|gpu| Self::new(gpu, &mut compiler, requests, choices.as_mut())).collect()
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
        let mut library_calls = Vec::new();
        for call in requests.calls {
            let is_measured = tuner.is_some();
            let made = LibraryCall::new(&cublaslt, cudnn.as_ref(), requests, call, is_measured)?;
            library_calls.push(made);
        }
        let parts: Vec<_> = (library_calls.iter().zip(requests.calls))
            .map(|(made, call)| generated_parts(made.as_ref(), requests, call, tuner.is_some()))
            .collect();
        let source = ModelSource::new(requests, &parts)?;
        let parts = source.parts(thread::available_parallelism().map_or(1, NonZero::get));
        let modules = modules(gpu, compiler, &parts)?;
        let module_of = |call: usize| {
            let part = parts.iter().position(|it| it.calls.contains(&call));
            &modules[part.unwrap_or(0)]
        };
        let mut calls = Vec::new();
        let mut workspace_bytes = 0;
        for (number, (made, library_call)) in
            source.calls.into_iter().zip(library_calls).enumerate()
        {
            let call = (requests, &requests.calls[number]);
            let generated = GeneratedOperations::new(module_of(number), made)?;
            let chosen = match &mut tuner {
                Some(tuner) => {
                    choose(library_call, call, (&cublaslt, cudnn.as_ref()), tuner, &generated)?
                }
                None => library_call.map_or(Chosen::Variant(0), Chosen::Library),
            };
            let n_bytes = match &chosen {
                Chosen::Library(made) => {
                    made.workspace_bytes().max(generated.remaining_workspace_bytes())
                }
                Chosen::Variant(number) => generated.workspace_bytes(*number),
            };
            workspace_bytes = workspace_bytes.max(n_bytes);
            calls.push(PreparedCall { chosen, generated });
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
        let PreparedCall { chosen, generated } = &self.calls[call];
        let library_call = match chosen {
            Chosen::Library(library_call) => library_call,
            // SAFETY: required of the caller.
            Chosen::Variant(it) => return unsafe { generated.run_variant(*it, stream, operands) },
        };
        let handles = (&self.cublaslt, self.cudnn.as_ref());
        // SAFETY: required of the caller.
        match unsafe { library_call.run(handles, stream, operands) }? {
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
