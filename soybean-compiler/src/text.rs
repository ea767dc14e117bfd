//! The text form of programs.

use std::fmt::Write as _;

use soybean_plan::{DType, Kernel, Program, Step};

use crate::scalar::ScalarText;

/// A program as text, one line for each step.
#[must_use]
pub fn program_text(program: &Program) -> String {
    let mut text = format!("program {} on {}\n", program.tables.name, program.tables.mesh);
    for (name, steps) in [("train", &program.train), ("evaluate", &program.evaluate)] {
        let _ = writeln!(text, "{name}:");
        for step in steps {
            let _ = writeln!(text, "  {}", line(program, step));
        }
    }
    text
}

fn line(program: &Program, step: &Step) -> String {
    let kernel = match &program.kernels[step.kernel] {
        Kernel::Contract(it) => {
            let batch =
                if it.batch.is_empty() { String::new() } else { format!("{:?} ", &it.batch[..]) };
            format!("contract {batch}{}x{}x{}", it.rows, it.depth, it.columns)
        }
        Kernel::Map(it) => format!("map {} {{{}}}", it.extents, ScalarText(&it.program)),
        Kernel::Reduce(it) => {
            let program = ScalarText(&it.map.program);
            format!("{} {} {{{program}}}", it.combine.name(), it.map.extents)
        }
        Kernel::Permute(it) => format!("permute {}", it.extents),
        Kernel::Convolve(it) => {
            let ([height, width], [rows, columns]) = (it.image, it.window);
            let images = format!("{}x{}x{height}x{width}", it.batch, it.groups * it.channels);
            let filters = format!("{}x{}x{rows}x{columns}", it.groups * it.filters, it.channels);
            format!("{} {images} by {filters}", it.form.name())
        }
        Kernel::Pool(it) => {
            let ([height, width], [rows, columns]) = (it.image, it.window);
            format!("{} {}x{height}x{width} by {rows}x{columns}", it.form.name(), it.planes)
        }
        Kernel::Pad(it) => format!("pad {} to {}", it.input, it.result),
        Kernel::Concatenate(it) => format!("concatenate {}x{:?}", it.outer, it.lengths),
        Kernel::Embed(it) => {
            format!("{} {} of {}x{}", it.form.name(), it.n_indices, it.rows, it.width)
        }
        Kernel::Attend(it) => {
            let (queries, keys, features) = (it.queries, it.keys, it.features);
            format!("{} {} x {queries}x{keys}x{features}", it.form.name(), it.heads)
        }
        Kernel::Communicate(it) => {
            format!("{} {} {} -> {}", it.kind.name(), it.shape, it.from, it.to)
        }
    };
    let is_rounded = |&it: &usize| program.tables.buffers[it].dtype == DType::Bf16;
    let dtype = if step.results.iter().any(is_rounded) { ": bf16" } else { "" };
    format!("{}{dtype} = {kernel} ({})", list(&step.results), list(&step.inputs))
}

fn list(buffers: &[usize]) -> String {
    buffers.iter().map(|it| format!("b{it}")).collect::<Vec<_>>().join(", ")
}
