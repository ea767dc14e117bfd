//! `plan`: shows and explains the plan of the build, or a plan with other options.

use std::{fs, io::Write, path::Path};

use soybean_explain::{
    Changes, Compiled, SavedPlan, Side, Strategy, compile_again, diff, page, pass_texts, picture,
    why,
};
use soybean_plan::Plan;

use super::{
    CommandError,
    flags::{Format, PlanOptions},
};

pub(super) fn plan(
    plan: &Plan,
    options: &PlanOptions,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    check(options)?;
    if let Some(folder) = &options.passes {
        return write_passes(plan, options, folder);
    }
    let text = text(plan, options)?;
    let Some(file) = &options.file else { return Ok(writeln!(output, "{}", text.trim_end())?) };
    let fault = |error| CommandError::Failed(format!("cannot write {}: {error}", file.display()));
    fs::write(file, text).map_err(fault)
}

/// Compiles the model again, and writes the text form after each pass: `01-differentiate.txt`.
fn write_passes(plan: &Plan, options: &PlanOptions, folder: &Path) -> Result<(), CommandError> {
    let texts = pass_texts(&options.changes.apply(plan.recipe)?)?;
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    for (at, pass) in texts.iter().enumerate() {
        let file = folder.join(format!("{:02}-{}.txt", at + 1, pass.name));
        fs::write(&file, &pass.text)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Explanations are texts, and answer one question at a time.
fn check(options: &PlanOptions) -> Result<(), CommandError> {
    let usage = |message: &str| Err(CommandError::Usage(message.to_owned()));
    if options.passes.is_some() && (options.why.is_some() || !options.diff.is_empty()) {
        return usage("--passes writes files: ask --why and --diff without it");
    }
    match (&options.why, options.diff.len(), options.format) {
        (None, 0, _) | (Some(_), 0, Format::Text) | (None, 2, Format::Text) => Ok(()),
        (None, 2, _) | (Some(_), 0, _) => usage("--why and --diff give text only"),
        (Some(_), _, _) => usage("--why and --diff are two questions: ask one at a time"),
        (None, _, _) => usage("--diff compares two plans: give it once"),
    }
}

fn text(plan: &Plan, options: &PlanOptions) -> Result<String, CommandError> {
    if let [left, right] = &options.diff[..] {
        let side = |name: &str| side(plan, options, name);
        return Ok(diff(&side(left)?, &side(right)?)?);
    }
    if let Some(name) = &options.why {
        let recipe = options.changes.apply(plan.recipe)?;
        let report = compile_again(&recipe)?.report;
        return Ok(why(&report, &recipe.options.search, name)?.text(&report));
    }
    if options.format == Format::Text && options.changes == Changes::default() {
        return Ok(plan.text.to_owned());
    }
    let compiled = compile_again(&options.changes.apply(plan.recipe)?)?;
    Ok(formatted(&compiled, options.format))
}

/// Returns the plan of a strategy or of a file.
fn side(plan: &Plan, options: &PlanOptions, name: &str) -> Result<Side, CommandError> {
    let text = match name.parse::<Strategy>() {
        Ok(strategy) => {
            let changes = Changes { strategy: Some(strategy), ..options.changes.clone() };
            compile_again(&changes.apply(plan.recipe)?)?.report.json()
        }
        Err(unknown) => fs::read_to_string(name)
            .map_err(|error| format!("{unknown}; as a file `{name}` cannot be read: {error}"))?,
    };
    let plan = SavedPlan::read(&text).map_err(|fault| format!("{name}: {fault}"))?;
    Ok(Side { title: name.to_owned(), plan })
}

fn formatted(compiled: &Compiled, format: Format) -> String {
    let report = &compiled.report;
    match format {
        Format::Text => report.text(),
        Format::Json => report.json(),
        Format::Dot => picture::dot(report),
        Format::Svg => picture::svg(report),
        Format::Html => page::html(compiled),
    }
}
