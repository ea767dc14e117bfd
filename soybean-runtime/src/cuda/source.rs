//! CUDA C++ source of a model's kernels.

use soybean_codegen::{self as codegen, Address, Generated, Operation, movement, prelude};
use soybean_plan::{DType, Kernel, Precision, Step};

use super::{
    collective::CommunicationBackend,
    compile::cubin,
    convolution::ResultConversion,
    device_program::DeviceProgram,
    epilogue::{Epilogue, Fused, FusedStep},
    phase::PhaseBuilder,
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
    /// Maximum workspace in bytes of a convolution of cuDNN.
    pub(crate) max_workspace_bytes: usize,
}

/// Part of a call that is generated as source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GeneratedPart<'a> {
    /// The whole kernel.
    WholeKernel,
    /// The conversion of a library call's result, if it needs one.
    Conversion(Option<&'a ResultConversion>),
}

/// Operations that are generated for a call.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCall {
    /// Operations after the library call, or all operations without one.
    pub(crate) operations: Vec<Operation>,
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
                    GeneratedCall { operations, workspace_bytes }
                }
                GeneratedPart::Conversion(None) => GeneratedCall::default(),
                GeneratedPart::Conversion(Some(conversion)) => {
                    let made = generate_conversion(conversion, &format!("k{number}_"))?;
                    this.text.push_str(&made.text);
                    let operations = made.operations.into_iter().map(redirected).collect();
                    GeneratedCall { operations, workspace_bytes: 0 }
                }
            };
            this.made.push(made);
        }
        Ok(this)
    }
}

fn generate_conversion(conversion: &ResultConversion, prefix: &str) -> Result<Generated, Error> {
    let kernel = Kernel::Permute(conversion.permutation);
    let (inputs, results) = conversion.types.split_at(1);
    // Copies compute no products, so the precision does not matter.
    let call = codegen::Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
    codegen::generate(&call, prefix).ok_or_else(|| {
        let message = format!("expected a copy that GPUs can make, found {conversion:?}");
        Error::new(ErrorKind::Program, message)
    })
}

/// Replaces the source of a conversion by the place at which the library call left the result.
fn redirected(operation: Operation) -> Operation {
    let redirect = |address| match address {
        Address::Input(_) => ResultConversion::FROM,
        Address::Result(_) | Address::Scalars | Address::Workspace(_) => address,
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

/// The machine code of a model's kernels.
#[derive(Clone, Debug)]
pub struct MachineCode {
    /// The number of kernels of the model.
    pub n_kernels: usize,
    /// The machine code, as an ELF file.
    pub cubin: Vec<u8>,
}

/// Compiles all kernels of a model for an architecture such as `sm_90`, including those that
/// libraries compute if available. Needs NVRTC, but no GPU.
///
/// # Errors
/// If NVRTC is missing or rejects the source, or the tables of the model are inconsistent.
pub fn compile_kernels(model: &dyn Model, architecture: &str) -> Result<MachineCode, Error> {
    let program = DeviceProgram::new(model)?.program;
    let tables = &program.tables;
    let mut builder = PhaseBuilder::new(tables, &program.kernels, CommunicationBackend::PeerAccess);
    let plain = |steps: Vec<Step>| Fused {
        steps: steps.into_iter().map(FusedStep::Plain).collect(),
        slots: Vec::new(),
    };
    let accumulating = tables.accumulate_loss.is_some().then_some(&program.accumulate);
    for steps in program.train.iter().chain(accumulating).chain(&program.evaluate) {
        let steps = builder.fuse_rows(steps);
        builder.phase(&plain(steps), &[])?;
    }
    let requests = KernelRequests {
        kernels: &builder.kernels,
        precision: tables.precision,
        calls: &builder.calls,
        transfers: &builder.transfers,
        max_workspace_bytes: 0,
    };
    let ModelSource { text, made } =
        ModelSource::new(&requests, &vec![GeneratedPart::WholeKernel; builder.calls.len()])?;
    Ok(MachineCode { n_kernels: made.len(), cubin: cubin(&text, architecture)? })
}
