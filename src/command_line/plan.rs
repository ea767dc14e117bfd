//! `plan`: shows and explains what was decided at build time, or would be with other options.

use std::{fs, io::Write};

use soybean_explain::Compiled;
use soybean_explain::{Changes, compile_again, picture};
use soybean_plan::Plan;

use super::{
    Failure,
    flags::{Format, PlanOptions},
};

pub(super) fn plan(
    plan: &Plan,
    options: &PlanOptions,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let text = text(plan, options)?;
    let Some(file) = &options.file else { return Ok(writeln!(output, "{}", text.trim_end())?) };
    let fault = |error| Failure::Work(format!("cannot write {}: {error}", file.display()));
    fs::write(file, text).map_err(fault)
}

fn text(plan: &Plan, options: &PlanOptions) -> Result<String, Failure> {
    if options.format == Format::Text && options.changes == Changes::default() {
        return Ok(plan.text.to_owned());
    }
    let compiled = compile_again(&options.changes.apply(plan.recipe)?)?;
    Ok(formatted(&compiled, options.format))
}

fn formatted(compiled: &Compiled, format: Format) -> String {
    let report = &compiled.report;
    match format {
        Format::Text => report.text(),
        Format::Json => report.json(),
        Format::Dot => picture::dot(report),
        Format::Svg => picture::svg(report),
    }
}
