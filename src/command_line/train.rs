//! `train`: runs a training, prints its progress, and handles signals.

mod dashboard;
mod resume_command;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use soybean_runtime::{ErrorKind, Process, Trainer};

use super::{
    CommandError, CommandModel,
    bench::memory_of_rank,
    flags::Options,
    signals::{Signal, Signals},
};
use crate::run::{
    self, Decimal, End, Event, FitError, Flow, LOSS, Split, Start, Summary, TrainConfig,
};
use dashboard::Dashboard;

pub(super) fn train(
    model: &CommandModel,
    options: &Options,
    split: &Split,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let config = options.run.clone();
    let out = config.out.clone().expect("the defaults of the command line have a folder");
    writeln!(output, "{} (`plan` explains it)\n", model.plan.summary)?;
    // The first start on a GPU compiles the kernels, which takes seconds.
    output.flush()?;
    let mut trainer = Trainer::new(model.model, config.trainer.clone())?;
    writeln!(output, "{}", trainer.device_line())?;
    let beside_plan = trainer.memory_beside_plan();
    if beside_plan.total() > 0 {
        writeln!(output, "memory {}", memory_of_rank(tables, beside_plan))?;
    }
    if let Some(file) = &options.settings_of_run {
        writeln!(output, "settings of {}", file.display())?;
    }
    let signals = Signals::catch()
        .map_err(|error| CommandError::Failed(format!("cannot wait for Ctrl-C: {error}")))?;
    let process = trainer.process();
    let mut printer = Printer::new(output, &config, process);
    let mut watch = |event: &Event<'_>| {
        printer.show(event);
        match signals.caught() {
            Some(_) => Flow::Stop,
            None if printer.is_closed() => Flow::Stop,
            None => Flow::Continue,
        }
    };
    let outcome = run::fit(&mut trainer, &model.plan, tables, &config, split, &mut watch);
    let printed = printer.finish();
    // The error of the run matters more than a closed output.
    let summary = outcome.map_err(|it| resumable_error(&it, &config, &out))?;
    printed?;
    // With several processes, another one may have caught it.
    let of_another = (process != Process::ONLY).then_some(Signal::Terminate);
    match (summary.end, signals.caught().or(of_another)) {
        (End::Stopped, Some(signal)) => Err(stopped(&summary, signal, &out)),
        _ => finish(&summary, &config, &out, output),
    }
}

/// Returns the folder of a run without `--out`.
pub(super) fn default_folder(model: &str) -> PathBuf {
    Path::new("runs").join(model)
}

/// Prints events: a line for each evaluation, and a dashboard on a terminal.
struct Printer<'o> {
    output: &'o mut dyn Write,
    dashboard: Dashboard,
    start: Option<Start>,
    fault: Option<std::io::Error>,
}

impl<'o> Printer<'o> {
    fn new(output: &'o mut dyn Write, config: &TrainConfig, process: Process) -> Self {
        Self { output, dashboard: Dashboard::new(config, process), start: None, fault: None }
    }

    /// Returns true if standard output is closed.
    fn is_closed(&self) -> bool {
        self.fault.is_some()
    }

    fn show(&mut self, event: &Event<'_>) {
        self.dashboard.show(event);
        let line = match event {
            Event::Start(start) => {
                self.start = Some((*start).clone());
                start.to_string()
            }
            Event::Note(note) => (*note).to_owned(),
            Event::Evaluation(record) => {
                let Some(start) = &self.start else { return };
                let (number, n_epochs) = (record.epoch, start.n_epochs);
                let width = n_epochs.to_string().len();
                let place = match record.ends_epoch {
                    true => String::new(),
                    false => format!("  step {}/{}", record.step, start.n_steps),
                };
                format!("epoch {number:width$}/{n_epochs}{place}  {record}")
            }
            Event::Step(_) | Event::Evaluating { .. } | Event::Checkpoint(_) => return,
        };
        let (output, fault) = (&mut self.output, &mut self.fault);
        self.dashboard.suspend(|| {
            if let Err(error) = writeln!(output, "{line}").and_then(|()| output.flush()) {
                fault.get_or_insert(error);
            }
        });
    }

    fn finish(self) -> Result<(), CommandError> {
        self.dashboard.clear();
        self.fault.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Returns an error with the command that resumes the run.
fn resumable_error(error: &FitError, config: &TrainConfig, out: &Path) -> CommandError {
    let FitError { error, checkpoint } = error;
    let Some(checkpoint) = checkpoint else { return CommandError::Failed(error.to_string()) };
    let lower = match error.kind() {
        ErrorKind::Loss => {
            format!(" --allow-change lr and a lower --lr than {:?}", config.trainer.learning_rate)
        }
        _ => String::new(),
    };
    let command = resume_command::command(checkpoint, out);
    CommandError::Failed(format!("{error}; resume from it with{lower}: {command}"))
}

fn stopped(summary: &Summary, signal: Signal, out: &Path) -> CommandError {
    let step = summary.n_steps;
    let message = match &summary.checkpoint {
        Some(path) => format!(
            "stopped after step {step}; the checkpoint is {}; resume with: {}",
            path.display(),
            resume_command::command(path, out)
        ),
        None => format!("stopped after step {step}, without a checkpoint"),
    };
    CommandError::Stopped { message, code: signal.exit_code() }
}

fn finish(
    summary: &Summary,
    config: &TrainConfig,
    out: &Path,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    if summary.end == End::NoBetter {
        let what = match config.watched() {
            LOSS => "the held-out loss",
            metric => metric,
        };
        let n = config.patience.unwrap_or_default();
        let best = Decimal(summary.best.unwrap_or(f64::NAN));
        let step = summary.best_step.unwrap_or(0);
        writeln!(
            output,
            "{what} did not improve in {n} evaluations: the best is {best}, after step {step}"
        )?;
    }
    if summary.n_skipped > 0 {
        writeln!(output, "{} updates were skipped: numbers were not finite", summary.n_skipped)?;
    }
    if let Some(best) = &summary.best_checkpoint {
        writeln!(output, "best checkpoint {}", best.display())?;
    }
    writeln!(output, "metrics in {}", out.display())?;
    if let Some(accuracy) = summary.last.as_ref().and_then(|it| it.metric("accuracy")) {
        writeln!(output, "accuracy {accuracy:.4}")?;
    }
    Ok(())
}
