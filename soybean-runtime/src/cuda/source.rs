//! CUDA C++ source of a model's kernels.

use std::sync::Arc;

use soybean_codegen::{
    self as codegen, Address, CheckedResult, Generated, Operation, movement, prelude,
};
use soybean_plan::{DType, Kernel, Precision, Step};

use super::{
    collective::CommunicationBackend,
    compile::cubin,
    convolution::{ResultConversion, epilogue_map},
    device_program::DeviceProgram,
    epilogue::{Epilogue, Function, Fused, FusedStep, operand_sums},
    gpu::Gpu,
    phase::PhaseBuilder,
};
use crate::{Error, ErrorKind, Model};

/// A kernel of the model with the element types of its buffers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelCall {
    pub(crate) kernel: usize,
    pub(crate) inputs: Vec<DType>,
    pub(crate) results: Vec<DType>,
    /// Epilogue of a product. Convolutions have its bias or the result of ReLU as their third
    /// input, and matrix products the sums of an operand as their second result.
    pub(crate) epilogue: Epilogue,
    /// The results of a map that must be finite.
    pub(crate) checked: Vec<CheckedResult>,
}

impl KernelCall {
    /// Returns the kernel with its types, without the epilogue.
    pub(crate) fn described<'a>(&'a self, requests: &KernelRequests<'a>) -> codegen::Call<'a> {
        let Self { kernel, inputs, results, epilogue: _, checked: _ } = self;
        let kernel = &requests.kernels[*kernel];
        codegen::Call { kernel, inputs, results, precision: requests.precision }
    }
}

/// The kernels that every GPU needs.
pub(crate) struct KernelRequests<'a> {
    pub(crate) kernels: &'a [Kernel],
    pub(crate) precision: Precision,
    pub(crate) calls: &'a [KernelCall],
    /// Names of the functions of transfers.
    pub(crate) transfers: &'a [String],
    /// Maximum workspace in bytes of a library call.
    pub(crate) max_workspace_bytes: usize,
}

impl KernelRequests<'_> {
    /// Describes the kernels and these GPUs.
    pub(crate) fn description(&self, gpus: &[Arc<Gpu>]) -> String {
        let Self { kernels, precision, calls, transfers: _, max_workspace_bytes } = self;
        let gpus: Vec<&str> = gpus.iter().map(|it| it.name.as_str()).collect();
        format!("{gpus:?} {precision:?} {max_workspace_bytes} {calls:?} {kernels:?}")
    }
}

/// Parts of a call that are generated as source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeneratedParts<'a> {
    pub(crate) remaining: RemainingPart<'a>,
    /// The number of variants of the whole kernel that are generated.
    pub(crate) n_variants: usize,
}

/// The source for use after a library call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RemainingPart<'a> {
    Nothing,
    /// The conversion of the result.
    Conversion(&'a ResultConversion),
    /// The epilogue of a convolution, in case that the library does not apply it.
    Epilogue,
    /// The sums of an operand of a matrix product, in case that the library does not compute them.
    Sums,
}

/// Functions and operations that are generated for a call.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCall {
    text: String,
    /// The operations after the library call. Their functions are in `text`, too.
    pub(crate) remaining: Generated,
    /// The variants of the whole kernel, whose texts are in `text`.
    pub(crate) variants: Vec<Generated>,
}

/// Source of everything that no library computes.
pub(crate) struct ModelSource {
    transfers: String,
    pub(crate) calls: Vec<GeneratedCall>,
}

/// Source of some calls, to be compiled on its own.
pub(crate) struct SourcePart {
    pub(crate) text: String,
    /// The numbers of the calls.
    pub(crate) calls: Vec<usize>,
}

/// A compiler spends more time on the prelude than on fewer bytes of functions.
const LEAST_BYTES_OF_PART: usize = 1 << 16;

impl ModelSource {
    /// Generates the source for these calls. `parts` says what is generated for each.
    pub(crate) fn new(
        requests: &KernelRequests<'_>,
        parts: &[GeneratedParts<'_>],
    ) -> Result<Self, Error> {
        let transfers = movement::text(requests.transfers);
        let mut this = Self { transfers, calls: Vec::new() };
        for (number, (call, parts)) in requests.calls.iter().zip(parts).enumerate() {
            let prefix = format!("k{number}_");
            let remaining = match parts.remaining {
                RemainingPart::Nothing => Generated::default(),
                RemainingPart::Conversion(conversion) => generate_conversion(conversion, &prefix)?,
                RemainingPart::Epilogue => generate_epilogue(requests, call, &prefix)?,
                RemainingPart::Sums => generate_sums(requests, call, &prefix)?,
            };
            let Generated { mut text, operations, workspace_bytes } = remaining;
            let remaining = Generated { text: String::new(), operations, workspace_bytes };
            let mut variants = Vec::new();
            for variant in 0..parts.n_variants {
                let prefix = match variant {
                    0 => prefix.clone(),
                    _ => format!("{prefix}variant{variant}_"),
                };
                let made = generate(requests, call, variant, &prefix)?;
                text.push_str(&made.text);
                variants.push(Generated { text: String::new(), ..made });
            }
            this.calls.push(GeneratedCall { text, remaining, variants });
        }
        Ok(this)
    }

    /// Returns the source in at most this many parts, about equally long. The first part has the
    /// transfers.
    pub(crate) fn parts(&self, max_parts: usize) -> Vec<SourcePart> {
        let n_bytes: usize = self.calls.iter().map(|it| it.text.len()).sum();
        let n_parts = (n_bytes / LEAST_BYTES_OF_PART).clamp(1, max_parts.max(1));
        let mut parts = vec![(self.transfers.len(), Vec::new()); n_parts];
        let mut by_length: Vec<usize> = (0..self.calls.len()).collect();
        by_length.sort_by_key(|it| std::cmp::Reverse(self.calls[*it].text.len()));
        for call in by_length {
            let Some(shortest) = parts.iter_mut().min_by_key(|it| it.0) else { break };
            shortest.0 += self.calls[call].text.len();
            shortest.1.push(call);
        }
        let part = |(number, (_, mut calls)): (usize, (usize, Vec<usize>))| {
            calls.sort_unstable();
            let transfers = if number == 0 { &self.transfers[..] } else { "" };
            let texts = calls.iter().map(|it| &self.calls[*it].text[..]);
            let text = [prelude(), transfers].into_iter().chain(texts).collect();
            SourcePart { text, calls }
        };
        parts.into_iter().enumerate().map(part).collect()
    }
}

/// Generates the conversion of a result from the place at which the library call left it.
fn generate_conversion(conversion: &ResultConversion, prefix: &str) -> Result<Generated, Error> {
    let kernel = Kernel::Permute(conversion.permutation);
    let (inputs, results) = conversion.types.split_at(1);
    // Copies compute no products, so the precision does not matter.
    let call = codegen::Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
    let made = codegen::generate(&call, prefix).ok_or_else(|| {
        let message = format!("expected a copy that GPUs can make, found {conversion:?}");
        Error::new(ErrorKind::Program, message)
    })?;
    Ok(redirected(made, |address| match address {
        Address::Input(_) => ResultConversion::FROM,
        _ => address,
    }))
}

/// Generates the epilogue of a convolution, in the place of its result.
fn generate_epilogue(
    requests: &KernelRequests<'_>,
    call: &KernelCall,
    prefix: &str,
) -> Result<Generated, Error> {
    let (kernel, types) = (&requests.kernels[call.kernel], call.inputs.get(2));
    let (Kernel::Convolve(convolution), Some(third)) = (kernel, types) else {
        return Err(no_kernel(requests, call));
    };
    let map = Kernel::Map(epilogue_map(convolution, call.epilogue.function));
    let (results, precision) = (&call.results[..], requests.precision);
    let inputs = &[results[0], *third];
    let what = codegen::Call { kernel: &map, inputs, results, precision };
    let made = codegen::generate(&what, &format!("{prefix}epilogue_"));
    let made = made.ok_or_else(|| no_kernel(requests, call))?;
    Ok(redirected(made, |address| match address {
        Address::Input(0) => Address::Result(0),
        Address::Input(_) => Address::Input(2),
        _ => address,
    }))
}

/// Generates the sums of an operand of a matrix product along its depth.
fn generate_sums(
    requests: &KernelRequests<'_>,
    call: &KernelCall,
    prefix: &str,
) -> Result<Generated, Error> {
    let kernel = &requests.kernels[call.kernel];
    let (Kernel::Contract(contraction), Some(operand)) = (kernel, call.epilogue.summed_operand())
    else {
        return Err(no_kernel(requests, call));
    };
    let sums = Kernel::Reduce(operand_sums(contraction, call.epilogue));
    let (inputs, results) = (&call.inputs[operand..=operand], &call.results[1..]);
    let what = codegen::Call { kernel: &sums, inputs, results, precision: requests.precision };
    let made = codegen::generate(&what, &format!("{prefix}sums_"));
    let made = made.ok_or_else(|| no_kernel(requests, call))?;
    Ok(redirected(made, |address| match address {
        Address::Input(_) => Address::Input(operand),
        Address::Result(_) => Address::Result(1),
        _ => address,
    }))
}

/// Returns the functions of two kernels, and their operations one after another.
fn in_turn(first: Generated, second: Generated) -> Generated {
    Generated {
        text: first.text + &second.text,
        operations: [first.operations, second.operations].concat(),
        workspace_bytes: first.workspace_bytes.max(second.workspace_bytes),
    }
}

/// Replaces the addresses of all operations.
fn redirected(mut made: Generated, redirect: impl Fn(Address) -> Address) -> Generated {
    for operation in &mut made.operations {
        match operation {
            Operation::Launch(launch) => {
                launch.arguments.iter_mut().for_each(|it| *it = redirect(*it));
            }
            Operation::Fill { target, .. } => *target = redirect(*target),
        }
    }
    made
}

fn generate(
    requests: &KernelRequests<'_>,
    call: &KernelCall,
    variant: usize,
    prefix: &str,
) -> Result<Generated, Error> {
    let (what, epilogue) = (call.described(requests), call.epilogue);
    let made = match what.kernel {
        Kernel::Map(map) => codegen::generate_checked_map(map, &what, &call.checked, prefix),
        Kernel::UpdateEmbedding(update) => {
            codegen::generate_checked_embedding_update(update, &what, &call.checked, prefix)
        }
        _ if epilogue.is_plain() => codegen::generate_variant(&what, variant, prefix),
        Kernel::Convolve(_) if epilogue.function == Function::ReluGradient => {
            let made = codegen::generate(&what, prefix);
            return made.map_or_else(
                || Err(no_kernel(requests, call)),
                |made| Ok(in_turn(made, generate_epilogue(requests, call, prefix)?)),
            );
        }
        Kernel::Convolve(convolution) => {
            let has_relu = epilogue.function == Function::Relu;
            codegen::generate_convolution_with_bias(convolution, &what, has_relu, prefix)
        }
        // The library of one GPU may support an epilogue that another lacks.
        _ => None,
    };
    made.ok_or_else(|| no_kernel(requests, call))
}

/// Returns the error for a call that has no kernel on GPUs.
fn no_kernel(requests: &KernelRequests<'_>, call: &KernelCall) -> Error {
    match &requests.kernels[call.kernel] {
        Kernel::Custom(it) if it.cuda.is_none() => Error::new(
            ErrorKind::Operator,
            format!(
                "operator `{}` has no text for GPUs: write `cuda = \"..\"` into its attribute, or \
                 run on the CPU",
                it.name
            ),
        ),
        kernel => {
            let (kind, number, inputs) = (kernel.kind(), call.kernel, &call.inputs);
            let message =
                format!("{kind} {number}: expected a kernel that GPUs can run on {inputs:?}");
            Error::new(ErrorKind::Program, message)
        }
    }
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
        let steps = codegen::fuse_rows(steps, &mut builder.kernels, tables);
        builder.phase(&plain(steps), &[])?;
    }
    let requests = KernelRequests {
        kernels: &builder.kernels,
        precision: tables.precision,
        calls: &builder.calls,
        transfers: &builder.transfers,
        max_workspace_bytes: 0,
    };
    let parts = GeneratedParts { remaining: RemainingPart::Nothing, n_variants: 1 };
    let source = ModelSource::new(&requests, &vec![parts; builder.calls.len()])?;
    let text = &source.parts(1)[0].text;
    Ok(MachineCode { n_kernels: source.calls.len(), cubin: cubin(text, architecture)? })
}
