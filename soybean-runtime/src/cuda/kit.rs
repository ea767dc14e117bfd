//! The kernels of a model on one GPU, made ready.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::sync::Arc;

use soybean_codegen::{self as codegen, Address};
use soybean_plan::Kernel;

use super::{
    compile::cubin,
    convolution::{Arrangement, ConvolutionPlan, Dnn},
    gpu::Gpu,
    libraries::find,
    memory::fill,
    module::{Function, Module, Threads},
    product::{self, Lt, Product},
    stream::Stream,
    text::{Call, Made, ModelText, Rest, Wanted},
};
use crate::{Error, ErrorKind};

/// A model's kernels on one GPU.
pub(crate) struct Kit {
    calls: Vec<Ready>,
    transfers: Vec<Function>,
    lt: Lt,
    dnn: Option<Dnn>,
    /// Keeps the functions.
    _module: Module,
    workspace_bytes: usize,
}

/// A call: what a library computes of it, if any does, and the operations around that or instead.
struct Ready {
    before: Vec<Operation>,
    planned: Option<Planned>,
    after: Vec<Operation>,
}

/// What a library computes.
enum Planned {
    Product(Box<Product>),
    Convolution(Box<ConvolutionPlan>),
}

enum Operation {
    Launch { function: Function, threads: Threads, arguments: Vec<Address> },
    Fill { target: Address, n_bytes: usize, value: u8 },
}

/// The addresses that a kernel works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands<'a> {
    pub(crate) inputs: &'a [u64],
    pub(crate) results: &'a [u64],
    pub(crate) scalars: u64,
    pub(crate) workspace: u64,
    /// What a product's epilogue reads or keeps besides.
    pub(crate) bias: u64,
    pub(crate) kept: u64,
}

impl Operands<'_> {
    fn address(&self, which: Address) -> Result<u64, Error> {
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

impl Kit {
    /// Makes the kernels ready.
    pub(crate) fn new(gpu: &Arc<Gpu>, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let lt = Lt::new(gpu)?;
        let dnn = find().cudnn().is_ok().then(|| Dnn::new(gpu)).transpose()?;
        let mut planned = Vec::new();
        for call in wanted.calls {
            planned.push(Planned::new(&lt, dnn.as_ref(), wanted, call)?);
        }
        let rests = planned.iter().map(|it| it.as_ref().map_or(Rest::Kernel, Planned::rest));
        let rests: Vec<Rest<'_>> = rests.collect();
        let ModelText { text, made } = ModelText::new(wanted, &rests)?;
        let module = Module::new(gpu, &cubin(&text, &gpu.architecture())?)?;
        let mut calls = Vec::new();
        let mut workspace_bytes = 0;
        for (planned, made) in planned.into_iter().zip(made) {
            let Made { before, after, workspace_bytes: n_bytes } = made;
            let n_planned = planned.as_ref().map_or(0, Planned::workspace_bytes);
            workspace_bytes = workspace_bytes.max(n_bytes).max(n_planned);
            let [before, after] = [operations(&module, before)?, operations(&module, after)?];
            calls.push(Ready { before, planned, after });
        }
        let function = |name: &String| module.function(name, 0);
        let transfers = wanted.transfers.iter().map(function).collect::<Result<_, _>>()?;
        Ok(Self { calls, transfers, lt, dnn, _module: module, workspace_bytes })
    }

    /// The bytes that kernels use while they run.
    pub(crate) const fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// The function of a transfer.
    pub(crate) fn transfer(&self, number: usize) -> Function {
        self.transfers[number]
    }

    /// Runs a kernel when the stream comes to it.
    ///
    /// # Safety
    /// The stream is of this kit's GPU. Until the kernel has run there are at the addresses, of that GPU or of peers that it can reach, buffers as the kernel's descriptor says, and nobody
    /// else uses the results or the workspace.
    pub(crate) unsafe fn run(
        &self,
        call: usize,
        stream: &Stream,
        operands: Operands<'_>,
    ) -> Result<(), Error> {
        let Ready { before, planned, after } = &self.calls[call];
        for operation in before {
            // SAFETY: required of the caller.
            unsafe { operation.run(stream, operands) }?;
        }
        if let Some(planned) = planned {
            // SAFETY: required of the caller; what stands before has put into the workspace what the library expects there.
            unsafe { planned.run(self, stream, operands) }?;
        }
        for operation in after {
            // SAFETY: required of the caller.
            unsafe { operation.run(stream, operands) }?;
        }
        Ok(())
    }
}

impl Operation {
    /// Runs it when the stream comes to it.
    ///
    /// # Safety
    /// As [`Kit::run`].
    unsafe fn run(&self, stream: &Stream, operands: Operands<'_>) -> Result<(), Error> {
        match self {
            Self::Launch { function, threads, arguments } => {
                let arguments = arguments.iter().map(|it| operands.address(*it)).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?;
                // SAFETY: the arguments are those of the text; the caller vouches for what they point to.
                unsafe { function.launch(stream, *threads, &arguments) }
            }
            Self::Fill { target, n_bytes, value } => {
                // SAFETY: as above.
                unsafe { fill(stream, operands.address(*target)?, *value, *n_bytes) }
            }
        }
    }
}

impl Planned {
    /// The library's plan for a call, if one of them can compute it.
    fn new(
        lt: &Lt,
        dnn: Option<&Dnn>,
        wanted: &Wanted<'_>,
        call: &Call,
    ) -> Result<Option<Self>, Error> {
        let (&[left, right, ..], &[result, ..]) = (&call.inputs[..], &call.results[..]) else {
            return Ok(None);
        };
        let (types, precision) = ([left, right, result], wanted.precision);
        match (&wanted.kernels[call.kernel], dnn) {
            (Kernel::Contract(contraction), _) => {
                let product = Product::new(lt, contraction, types, precision, call.epilogue)?;
                Ok(product.map(|it| Self::Product(Box::new(it))))
            }
            (Kernel::Convolve(convolution), Some(dnn)) => {
                let plan = ConvolutionPlan::new(dnn, convolution, types, precision)?;
                Ok(plan.map(|it| Self::Convolution(Box::new(it))))
            }
            _ => Ok(None),
        }
    }

    /// What it leaves to the text.
    fn rest(&self) -> Rest<'_> {
        match self {
            Self::Product(_) => Rest::Copies { before: &[], after: &[] },
            Self::Convolution(it) => {
                let Arrangement { before, after, .. } = it.arrangement();
                Rest::Copies { before, after }
            }
        }
    }

    /// Where it works on its two inputs and its result.
    fn operands(&self) -> [Address; 3] {
        match self {
            Self::Product(_) => [Address::Input(0), Address::Input(1), Address::Result(0)],
            Self::Convolution(it) => it.arrangement().operands,
        }
    }

    fn workspace_bytes(&self) -> usize {
        match self {
            Self::Product(it) => it.workspace_bytes(),
            Self::Convolution(it) => it.workspace_bytes(),
        }
    }

    /// Runs it when the stream comes to it.
    ///
    /// # Safety
    /// As [`Kit::run`].
    unsafe fn run(&self, kit: &Kit, stream: &Stream, operands: Operands<'_>) -> Result<(), Error> {
        let [left, right, result] = self.operands();
        let [left, right, result] =
            [operands.address(left)?, operands.address(right)?, operands.address(result)?];
        match (self, &kit.dnn) {
            (Self::Product(product), _) => {
                let (bias, kept) = (operands.bias, operands.kept);
                let at = product::Operands { left, right, result, bias, kept };
                // SAFETY: required of the caller.
                unsafe { product.run(&kit.lt, stream, at, operands.workspace) }
            }
            (Self::Convolution(plan), Some(dnn)) => {
                // SAFETY: required of the caller.
                unsafe { plan.run(dnn, stream, [left, right, result], operands.workspace) }
            }
            (Self::Convolution(_), None) => {
                Err(Error::new(ErrorKind::Program, "expected cuDNN, with which the plan was made"))
            }
        }
    }
}

fn operations(module: &Module, made: Vec<codegen::Operation>) -> Result<Vec<Operation>, Error> {
    let ready = |operation| match operation {
        codegen::Operation::Launch(launch) => {
            let codegen::Launch { function, grid, block, shared_bytes, arguments } = launch;
            let function = module.function(&function, shared_bytes)?;
            let threads = Threads { grid, block, shared_bytes };
            Ok(Operation::Launch { function, threads, arguments })
        }
        codegen::Operation::Fill { target, n_bytes, value } => {
            Ok(Operation::Fill { target, n_bytes, value })
        }
    };
    made.into_iter().map(ready).collect()
}
