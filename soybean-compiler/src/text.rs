//! The text form of programs.

use std::fmt::Write as _;

use soybean_plan::{Program, Step};

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
    let kernels = &program.kernels;
    match step {
        Step::Contract { kernel, left, right, result } => {
            let it = &kernels.contractions[*kernel];
            format!(
                "b{result} = contract {}{}x{}x{} (b{left}, b{right})",
                batch(&it.batch),
                it.rows,
                it.depth,
                it.columns
            )
        }
        Step::Map { kernel, inputs, results } => {
            let it = &kernels.maps[*kernel];
            format!(
                "{} = map {} {{{}}} ({})",
                list(results),
                it.extents,
                ScalarText(&it.program),
                list(inputs)
            )
        }
        Step::Reduce { kernel, inputs, result } => {
            let it = &kernels.reductions[*kernel];
            let (combine, program) = (it.combine.name(), ScalarText(&it.map.program));
            format!("b{result} = {combine} {} {{{program}}} ({})", it.map.extents, list(inputs))
        }
        Step::Permute { kernel, input, result } => {
            format!("b{result} = permute {} (b{input})", kernels.permutations[*kernel].extents)
        }
        Step::Convolve { kernel, left, right, result } => {
            let it = &kernels.convolutions[*kernel];
            let (image, window) = (it.image, it.window);
            let sizes =
                format!("{}x{}x{}x{}", it.batch, it.groups * it.channels, image[0], image[1]);
            let filters =
                format!("{}x{}x{}x{}", it.groups * it.filters, it.channels, window[0], window[1]);
            format!("b{result} = {} {sizes} by {filters} (b{left}, b{right})", it.form.name())
        }
        Step::Pool { kernel, inputs, result } => {
            let it = &kernels.poolings[*kernel];
            let (image, window) = (it.image, it.window);
            let sizes =
                format!("{}x{}x{} by {}x{}", it.planes, image[0], image[1], window[0], window[1]);
            format!("b{result} = {} {sizes} ({})", it.form.name(), list(inputs))
        }
        Step::Communicate { kernel, input, result } => {
            let it = &kernels.collectives[*kernel];
            format!(
                "b{result} = {} {} {} -> {} (b{input})",
                it.kind.name(),
                it.shape,
                it.from,
                it.to
            )
        }
    }
}

fn batch(extents: &[usize]) -> String {
    if extents.is_empty() { String::new() } else { format!("{extents:?} ") }
}

fn list(buffers: &[usize]) -> String {
    buffers.iter().map(|it| format!("b{it}")).collect::<Vec<_>>().join(", ")
}
