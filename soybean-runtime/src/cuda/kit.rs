//! The kernels of a model on one GPU, made ready.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::sync::Arc;

use soybean_codegen::{self as codegen, Address, movement, prelude};
use soybean_plan::{DType, Kernel, Precision};

use super::{
    compile::cubin,
    epilogue::Epilogue,
    gpu::Gpu,
    memory::fill,
    module::{Function, Module, Threads},
    product::{self, Lt, Product},
    stream::Stream,
};
use crate::{Error, ErrorKind};

/// A kernel of the model, on buffers of certain types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) kernel: usize,
    pub(crate) inputs: Vec<DType>,
    pub(crate) results: Vec<DType>,
    /// What a product does to its result.
    pub(crate) epilogue: Epilogue,
}

/// What the kits of all GPUs are made from.
pub(crate) struct Wanted<'a> {
    pub(crate) kernels: &'a [Kernel],
    pub(crate) precision: Precision,
    pub(crate) calls: &'a [Call],
    /// The functions of transfers.
    pub(crate) transfers: &'a [String],
}

/// A model's kernels on one GPU.
pub(crate) struct Kit {
    pub(crate) gpu: Arc<Gpu>,
    calls: Vec<Ready>,
    transfers: Vec<Function>,
    lt: Lt,
    /// Keeps the functions.
    _module: Module,
    workspace_bytes: usize,
}

enum Ready {
    Product(Box<Product>),
    Text(Vec<Operation>),
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
        let mut products: Vec<Option<Product>> = Vec::new();
        for call in wanted.calls {
            products.push(product(&lt, wanted, call)?);
        }
        let mut text = [prelude(), movement::text()].concat();
        let mut generated = Vec::new();
        for (number, (call, product)) in wanted.calls.iter().zip(&products).enumerate() {
            let made = match product {
                Some(_) => None,
                None => Some(generate(wanted, call, number)?),
            };
            text.extend(made.iter().map(|it| it.text.as_str()));
            generated.push(made);
        }
        let module = Module::new(gpu, &cubin(&text, &gpu.architecture())?)?;
        let mut calls = Vec::new();
        let mut workspace_bytes = 0;
        for (product, generated) in products.into_iter().zip(generated) {
            let n_bytes = product.as_ref().map_or(0, Product::workspace_bytes);
            let n_bytes = n_bytes.max(generated.as_ref().map_or(0, |it| it.workspace_bytes));
            workspace_bytes = n_bytes.max(workspace_bytes);
            calls.push(match (product, generated) {
                (Some(product), _) => Ready::Product(Box::new(product)),
                (None, made) => Ready::Text(operations(
                    &module,
                    made.map(|it| it.operations).unwrap_or_default(),
                )?),
            });
        }
        let find = |name: &String| module.function(name, 0);
        let transfers = wanted.transfers.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { gpu: Arc::clone(gpu), calls, transfers, lt, _module: module, workspace_bytes })
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
        match &self.calls[call] {
            Ready::Product(product) => {
                let at = product::Operands {
                    left: operands.address(Address::Input(0))?,
                    right: operands.address(Address::Input(1))?,
                    result: operands.address(Address::Result(0))?,
                    bias: operands.bias,
                    kept: operands.kept,
                };
                // SAFETY: required of the caller.
                unsafe { product.run(&self.lt, stream, at, operands.workspace) }
            }
            Ready::Text(operations) => operations.iter().try_for_each(|operation| {
                // SAFETY: required of the caller.
                unsafe { operation.run(stream, operands) }
            }),
        }
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

fn product(lt: &Lt, wanted: &Wanted<'_>, call: &Call) -> Result<Option<Product>, Error> {
    match (&wanted.kernels[call.kernel], &call.inputs[..], &call.results[..]) {
        (Kernel::Contract(contraction), &[left, right, ..], &[result]) => {
            let types = [left, right, result];
            Product::new(lt, contraction, types, wanted.precision, call.epilogue)
        }
        _ => Ok(None),
    }
}

fn generate(wanted: &Wanted<'_>, call: &Call, number: usize) -> Result<codegen::Generated, Error> {
    let kernel = &wanted.kernels[call.kernel];
    let (inputs, results, precision) = (&call.inputs[..], &call.results[..], wanted.precision);
    let what = codegen::Call { kernel, inputs, results, precision };
    codegen::generate(&what, &format!("k{number}_")).ok_or_else(|| {
        let message = format!(
            "{} {}: expected a kernel that GPUs can run on {inputs:?}",
            kernel.kind(),
            call.kernel
        );
        Error::new(ErrorKind::Program, message)
    })
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
