//! The kernels of a model as one text.

use soybean_codegen::{self as codegen, Address, Generated, Operation, movement, prelude};
use soybean_plan::{DType, Kernel, Precision, Step};

use super::{
    collective::Transport,
    compile::cubin,
    convolution::Rearrangement,
    epilogue::{Epilogue, Fused, FusedStep},
    phase::Planner,
    tape::record,
};
use crate::{Error, ErrorKind, Model, check::check_tables};

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

/// What a library leaves to the text of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest<'a> {
    /// The whole kernel.
    Kernel,
    /// What is to be done before and after.
    Copies { before: &'a [Rearrangement], after: &'a [Rearrangement] },
}

/// What the text does for a call.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Before what a library does, or all.
    pub(crate) before: Vec<Operation>,
    pub(crate) after: Vec<Operation>,
    /// The bytes that a kernel of the text uses while it runs.
    pub(crate) workspace_bytes: usize,
}

/// The text of all that no library computes.
pub(crate) struct ModelText {
    pub(crate) text: String,
    /// For each call.
    pub(crate) made: Vec<Made>,
}

impl ModelText {
    /// The text for these calls, of each of which libraries leave something.
    pub(crate) fn new(wanted: &Wanted<'_>, rests: &[Rest<'_>]) -> Result<Self, Error> {
        let text = [prelude(), &movement::text(wanted.transfers)].concat();
        let mut this = Self { text, made: Vec::new() };
        for (number, (call, rest)) in wanted.calls.iter().zip(rests).enumerate() {
            let made = match *rest {
                Rest::Kernel => {
                    let Generated { text, operations, workspace_bytes } =
                        generate(wanted, call, number)?;
                    this.text.push_str(&text);
                    Made { before: operations, after: Vec::new(), workspace_bytes }
                }
                Rest::Copies { before, after } => Made {
                    before: this.copies(before, &format!("k{number}_before"))?,
                    after: this.copies(after, &format!("k{number}_after"))?,
                    workspace_bytes: 0,
                },
            };
            this.made.push(made);
        }
        Ok(this)
    }

    fn copies(&mut self, copies: &[Rearrangement], prefix: &str) -> Result<Vec<Operation>, Error> {
        let mut operations = Vec::new();
        for (number, copy) in copies.iter().enumerate() {
            let made = generate_copy(copy, &format!("{prefix}{number}_"))?;
            self.text.push_str(&made.text);
            operations.extend(made.operations.into_iter().map(|it| redirected(it, copy)));
        }
        Ok(operations)
    }
}

fn generate_copy(copy: &Rearrangement, prefix: &str) -> Result<Generated, Error> {
    let kernel = Kernel::Permute(copy.permutation);
    let (inputs, results) = copy.types.split_at(1);
    // Copies have no products.
    let call = codegen::Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
    codegen::generate(&call, prefix).ok_or_else(|| {
        let message = format!("expected a copy that GPUs can make, found {copy:?}");
        Error::new(ErrorKind::Program, message)
    })
}

/// The operation of a copy, on the operands of the kernel that it belongs to.
fn redirected(operation: Operation, copy: &Rearrangement) -> Operation {
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

fn generate(wanted: &Wanted<'_>, call: &Call, number: usize) -> Result<Generated, Error> {
    let kernel = &wanted.kernels[call.kernel];
    let (inputs, results, precision) = (&call.inputs[..], &call.results[..], wanted.precision);
    let what = codegen::Call { kernel, inputs, results, precision };
    // What one GPU's library fuses, another's may not.
    let made = call.epilogue.is_plain().then(|| codegen::generate(&what, &format!("k{number}_")));
    made.flatten().ok_or_else(|| {
        let message = format!(
            "{} {}: expected a kernel that GPUs can run on {inputs:?}",
            kernel.kind(),
            call.kernel
        );
        Error::new(ErrorKind::Program, message)
    })
}

/// Compiles all kernels of a model for GPUs of an architecture, such as `sm_90`, those too that libraries compute where they are there. Needs NVRTC, but no GPU.
///
/// Gives the number of kernels, and the size of their machine code in bytes.
///
/// # Errors
/// If NVRTC is missing or refuses the text, or the model's tables contradict themselves.
pub fn compile_kernels(model: &dyn Model, architecture: &str) -> Result<(usize, usize), Error> {
    let tables = model.tables();
    check_tables(tables)?;
    let mut planner = Planner::new(tables, model.kernels(), Transport::Direct);
    let plain = |steps: Vec<Step>| Fused {
        steps: steps.into_iter().map(FusedStep::Plain).collect(),
        slots: Vec::new(),
    };
    planner.phase(&plain(record(model, |model, rank| model.train(rank))?), &[])?;
    planner.phase(&plain(record(model, |model, rank| model.evaluate(rank))?), &[])?;
    let wanted = Wanted {
        kernels: &planner.kernels,
        precision: tables.precision,
        calls: &planner.calls,
        transfers: &planner.transfers,
    };
    let ModelText { text, made } =
        ModelText::new(&wanted, &vec![Rest::Kernel; planner.calls.len()])?;
    Ok((made.len(), cubin(&text, architecture)?.len()))
}
