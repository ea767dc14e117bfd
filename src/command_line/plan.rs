//! `plan`: shows and explains the plan of the build, or a plan with other options.

use std::{fs, io::Write, path::Path};

use console::Term;
use soybean_explain::{
    Changes, Compiled, SavedPlan, Side, Strategy, compile_again, diff, page, pass_texts, picture,
    why_watched,
};
use soybean_plan::{Plan, read_text};
#[cfg(feature = "cuda")]
use soybean_runtime::{LaunchSummary, queued_tasks};

use super::{
    CommandError,
    background::Background,
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
    let Some(file) = &options.file else {
        let is_table = options.format == Format::Text;
        let columns = Term::stdout().size_checked().filter(|_| is_table).map(|it| it.1.into());
        return Ok(writeln!(output, "{}", fitted(text.trim_end(), columns))?);
    };
    let fault = |error| CommandError::Failed(format!("cannot write {}: {error}", file.display()));
    fs::write(file, text).map_err(fault)
}

/// Returns the text with its lines cut to the columns of the terminal, if it is shown on one.
fn fitted(text: &str, columns: Option<usize>) -> String {
    let is_long = |line: &str| columns.is_some_and(|it| line.chars().count() > it);
    let cut = |line: &str| match columns {
        Some(columns) if is_long(line) => {
            let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
            format!("{kept}\u{2026}\n")
        }
        Some(_) | None => format!("{line}\n"),
    };
    let mut lines: String = text.lines().map(cut).collect();
    if text.lines().any(is_long) {
        lines.push_str("\n(lines are cut to the width of the terminal; `-o FILE` keeps them)\n");
    }
    lines.truncate(lines.trim_end().len());
    lines
}

/// Compiles the model again, and writes the text form after each pass: `01-differentiate.txt`.
fn write_passes(plan: &Plan, options: &PlanOptions, folder: &Path) -> Result<(), CommandError> {
    let recipe = options.changes.apply(plan.recipe)?;
    let texts = Background::new()?.run(SEARCH, move || pass_texts(&recipe))??;
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
        return tilings(plan, options, name);
    }
    if options.format == Format::Text && options.changes == Changes::default() {
        return Ok(plan.text.to_owned());
    }
    let compiled = compiled(plan, &options.changes)?;
    Ok(match options.format {
        Format::Text => compiled.report.text(),
        Format::Json => compiled.report.json(),
        Format::Dot => picture::dot(&compiled.report),
        Format::Svg => picture::svg(&compiled.report),
        Format::Html => page::html(&compiled),
        Format::Launches => launches(plan, options, &compiled)?,
    })
}

/// The work of a compilation that takes long.
const SEARCH: &str = "searching for a plan";

/// Compiles the model again.
fn compiled(plan: &Plan, changes: &Changes) -> Result<Compiled, CommandError> {
    let recipe = changes.apply(plan.recipe)?;
    Ok(Background::new()?.run(SEARCH, move || compile_again(&recipe))??)
}

/// Explains a tensor. After a signal, the text has the tilings tried so far.
fn tilings(plan: &Plan, options: &PlanOptions, name: &str) -> Result<String, CommandError> {
    let recipe = options.changes.apply(plan.recipe)?;
    let request = recipe.options.search.clone();
    let mut background = Background::new()?;
    let report = background.run(SEARCH, move || compile_again(&recipe))??.report;
    let mut watch = |n_done: usize, n_all: usize| {
        background.check(&format!("{n_done} of {n_all} tilings of `{name}` are tried")).is_ok()
    };
    Ok(why_watched(&report, &request, name, &mut watch)?.text(&report))
}

/// The most bytes of a saved plan.
const MAX_PLAN_BYTES: u64 = 1 << 28;

/// Returns the plan of a strategy or of a file.
fn side(plan: &Plan, options: &PlanOptions, name: &str) -> Result<Side, CommandError> {
    let text = match name.parse::<Strategy>() {
        Ok(strategy) => {
            let changes = Changes { strategy: Some(strategy), ..options.changes.clone() };
            compiled(plan, &changes)?.report.json()
        }
        Err(unknown) => read_text(Path::new(name), MAX_PLAN_BYTES)
            .map_err(|error| format!("{unknown}; as a file `{name}` cannot be read: {error}"))?,
    };
    let plan = SavedPlan::read(&text).map_err(|fault| format!("{name}: {fault}"))?;
    Ok(Side { title: name.to_owned(), plan })
}

/// Returns what a step of each entry launches on every GPU, with estimated times on the GPUs of the
/// plan's cluster, or on an H100.
#[cfg(feature = "cuda")]
fn launches(
    plan: &Plan,
    options: &PlanOptions,
    compiled: &Compiled,
) -> Result<String, CommandError> {
    let search = options.changes.apply(plan.recipe)?.options.search;
    let cluster = search.cluster.or_else(|| soybean_cluster::preset("dgx-h100"));
    let device = cluster.expect("the preset exists").device;
    let tables = &compiled.program.tables;
    let mut text = format!(
        "What a step launches on each GPU; times by the roofline of a {}, not measured\n",
        device.name
    );
    for (number, entry) in tables.entries.iter().enumerate() {
        let tasks = queued_tasks(&compiled.program, number)?;
        let summary = LaunchSummary::new(&tasks, &device, tables.precision);
        text.push_str(&format!("\n{}, {}\n{summary}", entry.name, tables.precision));
    }
    Ok(text)
}

#[cfg(not(feature = "cuda"))]
fn launches(_: &Plan, _: &PlanOptions, _: &Compiled) -> Result<String, CommandError> {
    Err(CommandError::Usage("--format launches needs the feature `cuda`".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn lines_fit_the_terminal() {
        assert_eq!(fitted("abc\nabcde", None), "abc\nabcde");
        assert_eq!(fitted("abc\nabcde", Some(5)), "abc\nabcde");
        let cut = fitted("abc\nabcde", Some(4));
        assert!(cut.starts_with("abc\nabc\u{2026}\n\n(lines are cut"), "{cut}");
    }
}
