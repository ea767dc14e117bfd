//! The ready command line of a trainer: `train`, `plan`, `check`, `bench`, `devices`.
//!
//! Everything here sees a model through its plan, its program and its function, so it is compiled once for all models.

mod batches;
mod bench;
mod check;
mod determinism;
mod devices;
mod flags;
mod metrics;
mod oracle;
mod plan;
mod random;
mod train;

use std::{
    env,
    io::{self, ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
};

use soybean_plan::Plan;
use soybean_runtime::{Error, Model, data::Dataset};

use self::flags::{Command, Request};
use crate::Tensor;

/// What the loading function is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataOptions {
    /// The file given with `--data`, or the folder given with `--data-dir`.
    pub path: Option<PathBuf>,
    /// The seed given with `--seed`, for data that are drawn or split at random.
    pub seed: u64,
}

/// Data in two parts. The columns are the model's inputs, in the order of its function's arguments; a row is one sample.
#[derive(Clone, Debug)]
pub struct Split {
    /// What the parameters are fitted to.
    pub train: Dataset,
    /// What the result is judged by.
    pub held_out: Dataset,
}

/// What the flags of a command line mean when they are not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// `--epochs`
    pub epochs: usize,
    /// `--lr`
    pub learning_rate: f32,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { epochs: 10, learning_rate: 0.01 }
    }
}

/// The model that a command line is about.
pub(crate) struct Subject {
    pub(crate) plan: Plan,
    pub(crate) model: &'static dyn Model,
    pub(crate) forward: fn(&[Tensor]) -> Vec<Tensor>,
}

/// Why a command ended early.
enum Failure {
    /// The command line cannot be understood.
    Usage(String),
    /// The work could not be done.
    Work(String),
    /// Nobody reads the output any more.
    OutputClosed,
}

pub(crate) fn main(
    subject: &Subject,
    defaults: Defaults,
    load: impl FnOnce(&DataOptions) -> Result<Split, String>,
) -> ExitCode {
    let mut output = io::stdout().lock();
    let outcome = run(subject, defaults, load, &mut output).and_then(|()| Ok(output.flush()?));
    let (message, code) = match outcome {
        Ok(()) | Err(Failure::OutputClosed) => return ExitCode::SUCCESS,
        Err(Failure::Work(message)) => (message, 1),
        Err(Failure::Usage(message)) => (format!("{message} (--help lists all flags)"), 2),
    };
    // If standard error is closed too, the exit code is all that is left to tell.
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(code)
}

fn run(
    subject: &Subject,
    defaults: Defaults,
    load: impl FnOnce(&DataOptions) -> Result<Split, String>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let options = match flags::parse(env::args_os().skip(1), defaults)? {
        Request::Help(text) => return Ok(write!(output, "{text}")?),
        Request::Run(options) => options,
    };
    match options.command {
        Command::Plan => plan::plan(&subject.plan, &options.plan, output),
        Command::Train => train::train(subject, &options, &load(&options.data)?, output),
        Command::Check if options.determinism => {
            determinism::check(subject, &options, &load(&options.data)?.train, output)
        }
        Command::Check => check::check(subject, &options, &load(&options.data)?.train, output),
        Command::Devices => devices::devices(output),
        Command::Bench => bench::bench(subject, &options, &load(&options.data)?.train, output),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Work(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Work(message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Work(format!("cannot write the output: {error}")),
        }
    }
}
