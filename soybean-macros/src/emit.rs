//! Emission of a program as Rust source: descriptors become statics, steps become calls.

use std::fmt::Write as _;

use soybean_compiler::{Compiled, Report};
use soybean_plan::{ConstExpression, Kernel, Step};

/// The maximum number of calls in one generated function: compile time grows faster than the length
/// of a function.
const MAX_CALLS: usize = 100;

/// The types of `soybean_plan` that generated code names, apart from those of kernels.
const TYPES: &[&str] = &[
    "AxisSet",
    "Binary",
    "Buffer",
    "CollectiveKind",
    "Combine",
    "Constant",
    "DType",
    "DigitOrder",
    "Entry",
    "Halo",
    "Init",
    "Input",
    "Instruction",
    "Kernel",
    "Mesh",
    "Mode",
    "NextValue",
    "NonFinite",
    "Output",
    "Parameter",
    "Placement",
    "Plan",
    "Precision",
    "Rows",
    "RunScalar",
    "ScalarProgram",
    "Shape",
    "State",
    "Strides",
    "Tables",
    "Tile",
    "Tiling",
    "TrainingStep",
    "Unary",
];

/// Appends the items of the module `__program`.
pub(crate) fn program(text: &mut String, compiled: &Compiled, recipe: &str) {
    let Compiled { program, report } = compiled;
    imports(text);
    plan(text, report, recipe);
    text.push_str("static TABLES: Tables = ");
    program.tables.write_expression(text);
    text.push_str(";\nstatic KERNELS: &[Kernel] = ");
    text.push('&');
    <[Kernel]>::write_expression(&program.kernels, text);
    text.push_str(";\n");
    for (entry, steps) in program.train.iter().enumerate() {
        functions(text, &format!("train_{entry}"), steps);
    }
    if program.tables.accumulate > 1 {
        functions(text, "accumulate", &program.accumulate);
    }
    for (entry, steps) in program.evaluate.iter().enumerate() {
        functions(text, &format!("evaluate_{entry}"), steps);
    }
    text.push_str("pub(crate) struct Generated;\nunsafe impl Model for Generated {\n");
    text.push_str("fn tables(&self) -> &Tables { &TABLES }\n");
    text.push_str("fn kernels(&self) -> &[Kernel] { KERNELS }\n");
    of_entries(text, "train", &program.train);
    if program.tables.accumulate > 1 {
        method(text, "accumulate", &program.accumulate);
    }
    of_entries(text, "evaluate", &program.evaluate);
    text.push_str("}\n");
}

fn imports(text: &mut String) {
    let mut types = [TYPES, Kernel::TYPES].concat();
    types.sort_unstable();
    write_to(
        text,
        format_args!(
            "#[allow(unused_imports)]\n\
             use ::std::{{borrow::Cow, prelude::v1::*}};\n\
             use ::soybean::runtime::{{Model, Rank}};\n\
             #[allow(unused_imports)]\n\
             use ::soybean::plan::{{{}}};\n",
            types.join(", ")
        ),
    );
}

fn plan(text: &mut String, report: &Report, recipe: &str) {
    let mode = report.mode();
    let (n_gpus, strategy, is_optimal) = (report.n_gpus(), report.strategy(), report.is_optimal());
    let (bytes_total, memory) = (report.bytes_total, report.peak_memory_bytes_per_gpu);
    let (accumulate, accumulate_bytes) = (report.accumulate(), report.accumulate_bytes);
    let (summary, table) = (report.summary(), report.text());
    write_to(
        text,
        format_args!(
            "pub(crate) const PLAN: Plan = Plan {{ mode: Mode::{mode:?}, n_gpus: {n_gpus}, strategy: {strategy:?}, is_optimal: {is_optimal}, \
             bytes_total: {bytes_total}, accumulate: {accumulate}, accumulate_bytes: {accumulate_bytes}, peak_memory_bytes_per_gpu: {memory}, summary: {summary:?}, text: {table:?}, recipe: {recipe:?} }};\n"
        ),
    );
}

/// Writes functions that run the steps, a range of them in each function.
fn functions(text: &mut String, name: &str, steps: &[Step]) {
    for (index, steps) in steps.chunks(MAX_CALLS).enumerate() {
        write_to(text, format_args!("fn {name}_{index}(rank: &mut Rank<'_>) {{\n"));
        for step in steps {
            let Step { kernel, inputs, results } = step;
            write_to(text, format_args!("rank.run({kernel}, &{inputs:?}, &{results:?});\n"));
        }
        text.push_str("}\n");
    }
}

/// Writes the method that calls those functions, and stops if a rank has failed.
fn method(text: &mut String, name: &str, steps: &[Step]) {
    let rank = if steps.is_empty() { "_" } else { "rank" };
    write_to(text, format_args!("fn {name}(&self, {rank}: &mut Rank<'_>) {{\n"));
    calls(text, name, steps);
    text.push_str("}\n");
}

/// Writes the method of this name that calls the functions of an entry.
fn of_entries(text: &mut String, name: &str, entries: &[Vec<Step>]) {
    let rank = if entries.iter().all(Vec::is_empty) { "_" } else { "rank" };
    write_to(text, format_args!("fn {name}(&self, entry: usize, {rank}: &mut Rank<'_>) {{\n"));
    text.push_str("match entry {\n");
    for (entry, steps) in entries.iter().enumerate() {
        write_to(text, format_args!("{entry} => {{\n"));
        calls(text, &format!("{name}_{entry}"), steps);
        text.push_str("}\n");
    }
    text.push_str("_ => ::core::unreachable!(\"there is no such entry\"),\n}\n}\n");
}

/// Writes the calls of those functions.
fn calls(text: &mut String, name: &str, steps: &[Step]) {
    for index in 0..steps.len().div_ceil(MAX_CALLS) {
        if index > 0 {
            text.push_str("if rank.is_failed() { return; }\n");
        }
        write_to(text, format_args!("{name}_{index}(rank);\n"));
    }
}

fn write_to(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests;
