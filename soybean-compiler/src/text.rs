//! The text form of programs.

use std::fmt::Write as _;

use soybean_plan::{DType, Program, Step};

/// Returns a program as text, one line for each step.
#[must_use]
pub fn program_text(program: &Program) -> String {
    let mut text = format!("program {} on {}\n", program.tables.name, program.tables.mesh);
    let mut phases =
        vec![("train".to_owned(), &program.train), ("accumulate".to_owned(), &program.accumulate)];
    let has_one = program.evaluate.len() == 1;
    phases.extend(program.tables.entries.iter().zip(&program.evaluate).map(|(entry, steps)| {
        let name = if has_one { "evaluate".to_owned() } else { format!("evaluate {}", entry.name) };
        (name, steps)
    }));
    for (name, steps) in phases {
        if name == "accumulate" && steps.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{name}:");
        for step in steps {
            let _ = writeln!(text, "  {}", line(program, step));
        }
    }
    text
}

fn line(program: &Program, step: &Step) -> String {
    let kernel = &program.kernels[step.kernel];
    let is_rounded = |&it: &usize| program.tables.buffers[it].dtype == DType::Bf16;
    let dtype = if step.results.iter().any(is_rounded) { ": bf16" } else { "" };
    format!("{}{dtype} = {kernel} ({})", list(&step.results), list(&step.inputs))
}

fn list(buffers: &[usize]) -> String {
    buffers.iter().map(|it| format!("b{it}")).collect::<Vec<_>>().join(", ")
}
