//! The text form of programs.

use std::fmt::Write as _;

use soybean_plan::{DType, Program, Step};

/// Returns a program as text, one line for each step.
#[must_use]
pub fn program_text(program: &Program) -> String {
    let mut text = format!("program {} on {}\n", program.tables.name, program.tables.mesh);
    let has_one = program.tables.entries.len() == 1;
    let names = program.tables.entries.iter().map(|it| it.name.as_ref());
    let names: Vec<&str> = names.collect();
    let named = |phase: &str, entry: usize| match has_one {
        true => phase.to_owned(),
        false => format!("{phase} {}", names[entry]),
    };
    let train = program.train.iter().enumerate().map(|(at, it)| (named("train", at), it));
    let mut phases: Vec<(String, &Vec<Step>)> = train.collect();
    phases.push(("accumulate".to_owned(), &program.accumulate));
    let evaluate = program.evaluate.iter().enumerate();
    phases.extend(evaluate.map(|(at, it)| (named("evaluate", at), it)));
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
