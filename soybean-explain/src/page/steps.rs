//! The steps of a training step or a prediction, with the text of each kernel once.

use soybean_plan::{BufferId, DType, Program, Step};

use super::json::{list, string};

/// Returns the texts of kernels, and for each step the number of its text, the buffers that it
/// writes, and those that it reads.
pub(super) fn json(program: &Program) -> String {
    let mut texts: Vec<String> = Vec::new();
    let step = |step: &Step| {
        let text = text(program, step);
        let number = texts.iter().position(|it| *it == text).unwrap_or_else(|| {
            texts.push(text);
            texts.len() - 1
        });
        format!("[{number},{},{}]", buffers(&step.results), buffers(&step.inputs))
    };
    let steps = list(program.measured_step().iter().map(step).collect::<Vec<_>>().into_iter());
    format!("{{\"texts\":{},\"steps\":{steps}}}", list(texts.iter().map(|it| string(it))))
}

/// Returns the type of what a step writes, unless it is `f32`, and its kernel.
fn text(program: &Program, step: &Step) -> String {
    let is_rounded = |&it: &BufferId| program.tables.buffers[it].dtype == DType::Bf16;
    let dtype = if step.results.iter().any(is_rounded) { ": bf16" } else { "" };
    format!("{dtype} = {}", program.kernels[step.kernel])
}

fn buffers(numbers: &[BufferId]) -> String {
    list(numbers.iter().map(ToString::to_string))
}
