//! The command lines of trainers (`train`, `plan`, `check`, `bench`, `devices`) and of predictors
//! (all except `train`, and `generate` for texts).
//!
//! The code is compiled once for all models: it accesses a model through its plan, its program and
//! its function.

mod background;
mod bench;
mod calibrate;
mod check;
mod determinism;
mod devices;
mod flags;
mod generate;
mod non_finite;
mod plan;
mod predictor;
mod printable_output;
mod random;
mod signals;
mod train;

use std::{
    env,
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

use soybean_plan::Plan;
use soybean_runtime::{Error, Model, Process};

use self::{
    flags::{Command, CommandEntry, Request},
    printable_output::{PrintableOutput, without_controls},
};
use crate::{
    DataOptions, Network, Split, Tensor, TrainConfig, generation::TextModel, run::one_entry,
};

/// The model of a command line.
pub(crate) struct CommandModel {
    pub(crate) plan: Plan,
    pub(crate) model: &'static dyn Model,
    pub(crate) forward: fn(usize, &[Tensor]) -> Vec<Tensor>,
    /// How texts are read and written, if the model continues them.
    pub(crate) texts: Option<TextModel>,
}

impl CommandModel {
    pub(crate) fn of<N: Network>() -> Self {
        Self { plan: N::PLAN, model: N::model(), forward: N::forward, texts: None }
    }
}

/// The error of a command.
enum CommandError {
    /// The command line is invalid.
    Usage(String),
    /// The command failed.
    Failed(String),
    /// A signal ended the run; the message has the command that resumes it.
    Stopped { message: String, code: u8 },
    /// Standard output is closed.
    OutputClosed,
}

/// Runs the command line of a trainer.
pub(crate) fn trainer(
    model: &CommandModel,
    defaults: TrainConfig,
    load: impl FnOnce(&DataOptions) -> Result<Split, String>,
) -> ExitCode {
    let out = defaults.out.unwrap_or_else(|| train::default_folder(&model.model.tables().name));
    main(model, TrainConfig { out: Some(out), ..defaults }, flags::TRAINER, load)
}

/// Runs the command line of a predictor.
pub(crate) fn predictor(model: &CommandModel) -> ExitCode {
    // No command of a predictor reads data.
    let load = |_: &DataOptions| Err("expected a command without data".to_owned());
    let commands = if model.texts.is_some() { flags::WRITER } else { flags::PREDICTOR };
    main(model, TrainConfig::default(), commands, load)
}

fn main(
    model: &CommandModel,
    defaults: TrainConfig,
    commands: &'static [CommandEntry],
    load: impl FnOnce(&DataOptions) -> Result<Split, String>,
) -> ExitCode {
    let process = match Process::start() {
        Ok(process) => process,
        Err(error) => return report_failure(Process::ONLY, &error.to_string(), 1),
    };
    // All processes run the same command, and the first one prints. Standard output is not locked,
    // since user code may print in threads that a run waits for.
    let mut output: Box<dyn Write> =
        if process.is_first() { Box::new(io::stdout()) } else { Box::new(io::sink()) };
    let mut output = PrintableOutput(&mut output);
    let request = flags::parse(env::args_os(), defaults, commands);
    let outcome = request
        .and_then(|it| run(model, it, load, process, &mut output))
        .and_then(|()| Ok(output.flush()?));
    match outcome {
        Ok(()) | Err(CommandError::OutputClosed) => ExitCode::SUCCESS,
        Err(CommandError::Failed(message)) => report_failure(process, &message, 1),
        Err(CommandError::Usage(message)) => {
            report_failure(process, &format!("{message} (--help lists all flags)"), 2)
        }
        Err(CommandError::Stopped { message, code }) => {
            // All processes have agreed on the end.
            if process.is_first() {
                print_error(&message);
            }
            ExitCode::from(code)
        }
    }
}

/// Reports the error of this process, unless another process reports one.
fn report_failure(process: Process, message: &str, code: u8) -> ExitCode {
    if process.fail(message) {
        let who = match process {
            Process::ONLY => String::new(),
            Process { number, .. } => format!("process {number}: "),
        };
        print_error(&format!("{who}error: {message}"));
    }
    ExitCode::from(code)
}

/// Writes a line to standard error in one write, so that lines of several processes do not mix. If
/// it is closed, the exit code remains.
fn print_error(line: &str) {
    let line = without_controls(line);
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn run(
    model: &CommandModel,
    request: Request,
    load: impl FnOnce(&DataOptions) -> Result<Split, String>,
    process: Process,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let options = match request {
        Request::Help(text) => return Ok(write!(output, "{text}")?),
        Request::Run(options) => options,
    };
    let computes_much = matches!(
        options.command,
        Command::Train | Command::Bench | Command::BenchPredictor | Command::Generate
    );
    if computes_much && !soybean_runtime::is_optimized() {
        writeln!(output, "not optimized: on the CPU, `cargo run --release` is many times faster")?;
    }
    let only = one_entry(model.model.tables());
    if options.compares_entries() && only.is_err() {
        return check::check_entries(model, &options.run.trainer, output);
    }
    let reads_data = matches!(options.command, Command::Train | Command::Check | Command::Bench);
    if reads_data && options.calibrate.is_none() {
        only?;
    }
    match options.command {
        // The command may write a file.
        Command::Plan if !process.is_first() => Ok(()),
        Command::Plan => plan::plan(&model.plan, &options.plan, output),
        Command::Train => train::train(model, &options, &load(&options.run.data)?, output),
        Command::Check if options.determinism => {
            determinism::check(model, &options, &load(&options.run.data)?.train, output)
        }
        Command::Check if options.non_finite => {
            non_finite::check(model, &options, &load(&options.run.data)?.train, output)
        }
        Command::Check => check::check(model, &options, &load(&options.run.data)?.train, output),
        Command::Devices => devices::devices(output),
        Command::Bench | Command::BenchPredictor if options.calibrate.is_some() => {
            calibrate::calibrate(model, &options, process, output)
        }
        Command::Bench => bench::bench(model, &options, &load(&options.run.data)?.train, output),
        Command::CheckPredictor => predictor::check(model, &options, output),
        Command::BenchPredictor => predictor::bench(model, &options, output),
        Command::Generate => generate::generate(model, &options, output),
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<String> for CommandError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }
}
