//! The kernels of a model as one text.

use soybean_codegen::{self as codegen, Generated, movement, prelude};
use soybean_plan::{DType, Kernel, Precision, Step};

use super::{
    collective::Transport,
    compile::cubin,
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

/// The text of all kernels that no library computes.
pub(crate) struct ModelText {
    pub(crate) text: String,
    /// For each call what was generated for it, if no library computes it.
    pub(crate) generated: Vec<Option<Generated>>,
}

impl ModelText {
    /// The text for these calls, of which libraries compute some.
    pub(crate) fn new(wanted: &Wanted<'_>, is_planned: &[bool]) -> Result<Self, Error> {
        let mut text = [prelude(), movement::text()].concat();
        let mut generated = Vec::new();
        for (number, (call, is_planned)) in wanted.calls.iter().zip(is_planned).enumerate() {
            let made = (!is_planned).then(|| generate(wanted, call, number)).transpose()?;
            text.extend(made.iter().map(|it| it.text.as_str()));
            generated.push(made);
        }
        Ok(Self { text, generated })
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
    planner.phase(&plain(record(model, |model, rank| model.train(rank))?), None)?;
    planner.phase(&plain(record(model, |model, rank| model.evaluate(rank))?), None)?;
    let wanted = Wanted {
        kernels: &planner.kernels,
        precision: tables.precision,
        calls: &planner.calls,
        transfers: &planner.transfers,
    };
    let ModelText { text, generated } = ModelText::new(&wanted, &vec![false; planner.calls.len()])?;
    Ok((generated.len(), cubin(&text, architecture)?.len()))
}
