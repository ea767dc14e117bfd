//! CUDA C++ source of a model's kernels.

use soybean_codegen::{self as codegen, Address, Generated, Operation, movement, prelude};
use soybean_plan::{DType, Kernel, Mode, Precision, Step};

use super::{
    collective::CommunicationBackend,
    compile::cubin,
    convolution::LayoutCopy,
    device_program::DeviceProgram,
    epilogue::{Epilogue, Fused, FusedStep},
    phase::PhaseBuilder,
    recorder::record,
};
use crate::{Error, ErrorKind, Model};

/// A kernel of the model with the element types of its buffers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelCall {
    pub(crate) kernel: usize,
    pub(crate) inputs: Vec<DType>,
    pub(crate) results: Vec<DType>,
    /// Epilogue of a product.
    pub(crate) epilogue: Epilogue,
}

/// The kernels that every GPU needs.
pub(crate) struct KernelRequests<'a> {
    pub(crate) kernels: &'a [Kernel],
    pub(crate) precision: Precision,
    pub(crate) calls: &'a [KernelCall],
    /// Names of the functions of transfers.
    pub(crate) transfers: &'a [String],
}

/// Part of a call that is generated as source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GeneratedPart<'a> {
    /// The whole kernel.
    WholeKernel,
    /// Copies before and after a library call.
    Copies { before: &'a [LayoutCopy], after: &'a [LayoutCopy] },
}

/// Operations that are generated for a call.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCall {
    /// Operations before the library call, or all operations without one.
    pub(crate) before: Vec<Operation>,
    pub(crate) after: Vec<Operation>,
    /// Workspace of a generated kernel in bytes.
    pub(crate) workspace_bytes: usize,
}

/// Source of everything that no library computes.
pub(crate) struct ModelSource {
    pub(crate) text: String,
    /// Operations of each call.
    pub(crate) made: Vec<GeneratedCall>,
}

impl ModelSource {
    /// Generates the source for these calls. `parts` says what is generated for each.
    pub(crate) fn new(
        requests: &KernelRequests<'_>,
        parts: &[GeneratedPart<'_>],
    ) -> Result<Self, Error> {
        let text = [prelude(), &movement::text(requests.transfers)].concat();
        let mut this = Self { text, made: Vec::new() };
        for (number, (call, part)) in requests.calls.iter().zip(parts).enumerate() {
            let made = match *part {
                GeneratedPart::WholeKernel => {
                    let Generated { text, operations, workspace_bytes } =
                        generate(requests, call, number)?;
                    this.text.push_str(&text);
                    GeneratedCall { before: operations, after: Vec::new(), workspace_bytes }
                }
                GeneratedPart::Copies { before, after } => GeneratedCall {
                    before: this.copies(before, &format!("k{number}_before"))?,
                    after: this.copies(after, &format!("k{number}_after"))?,
                    workspace_bytes: 0,
                },
            };
            this.made.push(made);
        }
        Ok(this)
    }

    fn copies(&mut self, copies: &[LayoutCopy], prefix: &str) -> Result<Vec<Operation>, Error> {
        let mut operations = Vec::new();
        for (number, copy) in copies.iter().enumerate() {
            let made = generate_copy(copy, &format!("{prefix}{number}_"))?;
            self.text.push_str(&made.text);
            operations.extend(made.operations.into_iter().map(|it| redirected(it, copy)));
        }
        Ok(operations)
    }
}

fn generate_copy(copy: &LayoutCopy, prefix: &str) -> Result<Generated, Error> {
    let kernel = Kernel::Permute(copy.permutation);
    let (inputs, results) = copy.types.split_at(1);
    // Copies compute no products, so the precision does not matter.
    let call = codegen::Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
    codegen::generate(&call, prefix).ok_or_else(|| {
        let message = format!("expected a copy that GPUs can make, found {copy:?}");
        Error::new(ErrorKind::Program, message)
    })
}

/// Replaces the operands of a copy by those of the kernel that it belongs to.
fn redirected(operation: Operation, copy: &LayoutCopy) -> Operation {
    let redirect = |address| match address {
        Address::Input(_) => copy.from,
        Address::Result(_) => copy.to,
        Address::Scalars | Address::Workspace(_) => address,
    };
    match operation {
        Operation::Launch(mut launch) => {
            launch.arguments = launch.arguments.into_iter().map(redirect).collect();
            Operation::Launch(launch)
        }
        Operation::Fill { target, n_bytes, value } => {
            Operation::Fill { target: redirect(target), n_bytes, value }
        }
    }
}

fn generate(
    requests: &KernelRequests<'_>,
    call: &KernelCall,
    number: usize,
) -> Result<Generated, Error> {
    let kernel = &requests.kernels[call.kernel];
    let (inputs, results, precision) = (&call.inputs[..], &call.results[..], requests.precision);
    let what = codegen::Call { kernel, inputs, results, precision };
    // The library of one GPU may support an epilogue that another lacks.
    let made = call.epilogue.is_plain().then(|| codegen::generate(&what, &format!("k{number}_")));
    made.flatten().ok_or_else(|| match kernel {
        Kernel::Custom(it) if it.cuda.is_none() => Error::new(
            ErrorKind::Operator,
            format!(
                "operator `{}` has no text for GPUs: write `cuda = \"..\"` into its attribute, or \
                 run on the CPU",
                it.name
            ),
        ),
        _ => {
            let (kind, number) = (kernel.kind(), call.kernel);
            let message =
                format!("{kind} {number}: expected a kernel that GPUs can run on {inputs:?}");
            Error::new(ErrorKind::Program, message)
        }
    })
}

/// Compiles all kernels of a model for an architecture such as `sm_90`, including those that
/// libraries compute if available. Needs NVRTC, but no GPU.
///
/// Returns the number of kernels and the size of the cubin in bytes.
///
/// # Errors
/// If NVRTC is missing or rejects the source, or the tables of the model are inconsistent.
pub fn compile_kernels(model: &dyn Model, architecture: &str) -> Result<(usize, usize), Error> {
    let program = DeviceProgram::new(model)?.program;
    let model: &dyn Model = &program;
    let tables = model.tables();
    let mut builder = PhaseBuilder::new(tables, model.kernels(), CommunicationBackend::PeerAccess);
    let plain = |steps: Vec<Step>| Fused {
        steps: steps.into_iter().map(FusedStep::Plain).collect(),
        slots: Vec::new(),
    };
    let is_trained = tables.mode() == Mode::Training;
    for entry in (0..tables.entries.len()).filter(|_| is_trained) {
        let steps = record(model, |model, rank| model.train(entry, rank))?;
        builder.phase(&plain(steps), &[])?;
    }
    if tables.accumulate_loss.is_some() {
        builder.phase(&plain(record(model, |model, rank| model.accumulate(rank))?), &[])?;
    }
    for entry in 0..tables.entries.len() {
        let steps = record(model, |model, rank| model.evaluate(entry, rank))?;
        builder.phase(&plain(steps), &[])?;
    }
    let requests = KernelRequests {
        kernels: &builder.kernels,
        precision: tables.precision,
        calls: &builder.calls,
        transfers: &builder.transfers,
    };
    let ModelSource { text, made } =
        ModelSource::new(&requests, &vec![GeneratedPart::WholeKernel; builder.calls.len()])?;
    Ok((made.len(), cubin(&text, architecture)?.len()))
}
