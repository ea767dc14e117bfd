//! The table of commands and flags; the parser and the help texts follow from it.

mod plan;

use std::{ffi::OsString, fmt::Write, path::PathBuf};

use lexopt::{Arg, Parser, ValueExt};
use soybean_explain::nearest;
use soybean_runtime::Config;

pub(super) use self::plan::{Format, PlanOptions};
use super::{DataOptions, Defaults, Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Train,
    Plan,
    Check,
    Bench,
    Devices,
}

/// What a command line asks for.
#[derive(Debug)]
pub(super) enum Request {
    /// To show this text.
    Help(String),
    /// To run a command.
    Run(Box<Options>),
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) command: Command,
    pub(super) n_epochs: usize,
    pub(super) batch_limit: Option<usize>,
    pub(super) config: Config,
    pub(super) data: DataOptions,
    pub(super) out: Option<PathBuf>,
    pub(super) plan: PlanOptions,
    pub(super) n_steps: usize,
    pub(super) determinism: bool,
    pub(super) trace: Option<PathBuf>,
}

struct CommandEntry {
    command: Command,
    name: &'static str,
    help: &'static str,
}

const COMMANDS: &[CommandEntry] = &[
    CommandEntry { command: Command::Train, name: "train", help: "train the model (the default)" },
    CommandEntry { command: Command::Plan, name: "plan", help: "show and explain the plan" },
    CommandEntry {
        command: Command::Check,
        name: "check",
        help: "compare the generated trainer with the model's function and with finite differences",
    },
    CommandEntry { command: Command::Bench, name: "bench", help: "measure training steps" },
    CommandEntry {
        command: Command::Devices,
        name: "devices",
        help: "show which devices and libraries are found, and which are used",
    },
];

struct Flag {
    name: &'static str,
    /// What stands for its values in the help, one word each; empty if it takes none.
    value: &'static str,
    help: &'static str,
    commands: &'static [Command],
    /// Takes one value.
    set: fn(&mut Options, &str) -> Result<(), String>,
}

const RUNNING: &[Command] = &[Command::Train, Command::Check, Command::Bench];

const FLAGS: &[Flag] = &[
    Flag {
        name: "epochs",
        value: "N",
        help: "passes over the training data",
        commands: &[Command::Train],
        set: |options, text| set(&mut options.n_epochs, number(text)),
    },
    Flag {
        name: "batch-limit",
        value: "N",
        help: "at most this many batches in each epoch",
        commands: &[Command::Train],
        set: |options, text| set(&mut options.batch_limit, positive(text).map(Some)),
    },
    Flag {
        name: "lr",
        value: "X",
        help: "the learning rate",
        commands: &[Command::Train, Command::Bench],
        set: |options, text| set(&mut options.config.learning_rate, learning_rate(text)),
    },
    Flag {
        name: "seed",
        value: "N",
        help: "the seed of parameters, data and their order (0)",
        commands: RUNNING,
        set: |options, text| {
            set(&mut options.data.seed, number(text))?;
            set(&mut options.config.seed, number(text))
        },
    },
    Flag {
        name: "device",
        value: "NAME",
        help: "cpu, cuda or auto (auto)",
        commands: RUNNING,
        set: |options, text| set(&mut options.config.device, text.parse()),
    },
    Flag {
        name: "no-graph",
        value: "",
        help: "queue each kernel anew in every step on GPUs, for debugging",
        commands: RUNNING,
        set: |options, _| set(&mut options.config.uses_graphs, Ok(false)),
    },
    Flag {
        name: "trace",
        value: "FILE",
        help: "write what each rank did when in one step, for Perfetto or chrome://tracing",
        commands: &[Command::Train, Command::Bench],
        set: |options, text| set(&mut options.trace, Ok(Some(text.into()))),
    },
    Flag {
        name: "threads",
        value: "N",
        help: "CPU threads of all ranks together (all cores)",
        commands: RUNNING,
        set: |options, text| set(&mut options.config.threads, positive(text).map(Some)),
    },
    Flag {
        name: "data",
        value: "FILE",
        help: "another data file than the model's own",
        commands: RUNNING,
        set: |options, text| set(&mut options.data.path, Ok(Some(text.into()))),
    },
    Flag {
        name: "data-dir",
        value: "DIR",
        help: "another data folder, for models whose data are several files",
        commands: RUNNING,
        set: |options, text| set(&mut options.data.path, Ok(Some(text.into()))),
    },
    Flag {
        name: "out",
        value: "DIR",
        help: "where metrics.csv and metrics.svg go (runs/<model>)",
        commands: &[Command::Train],
        set: |options, text| set(&mut options.out, Ok(Some(text.into()))),
    },
    Flag {
        name: "determinism",
        value: "",
        help: "instead train some steps several times, and compare the bits of all results",
        commands: &[Command::Check],
        set: |options, _| set(&mut options.determinism, Ok(true)),
    },
    Flag {
        name: "steps",
        value: "N",
        help: "the number of steps to measure (20)",
        commands: &[Command::Bench],
        set: |options, text| set(&mut options.n_steps, positive(text)),
    },
];

/// All flags.
fn flags() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().chain(plan::FLAGS)
}

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0, found `{text}`"))
}

fn positive(text: &str) -> Result<usize, String> {
    number(text)
        .ok()
        .filter(|it| *it > 0)
        .ok_or_else(|| format!("expected a whole number from 1, found `{text}`"))
}

fn learning_rate(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|rate: &f32| rate.is_finite() && *rate >= 0.0)
        .ok_or_else(|| format!("expected a finite number from 0, found `{text}`"))
}

/// Understands the arguments after the program's name.
pub(super) fn parse(
    arguments: impl Iterator<Item = OsString>,
    defaults: Defaults,
) -> Result<Request, Failure> {
    let mut options = Options {
        command: Command::Train,
        n_epochs: defaults.epochs,
        batch_limit: None,
        config: Config { learning_rate: defaults.learning_rate, ..Config::default() },
        data: DataOptions::default(),
        out: None,
        plan: PlanOptions::default(),
        n_steps: 20,
        determinism: false,
        trace: None,
    };
    let mut parser = Parser::from_args(arguments);
    let mut command = None;
    let mut given = Vec::new();
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help(help(command))),
            Arg::Long(_) | Arg::Short('o') => {
                let flag = match argument {
                    Arg::Long(name) => find_flag(name)?,
                    Arg::Short(_) | Arg::Value(_) => find_flag("output")?,
                };
                take(flag, &mut parser, &mut options)?;
                given.push(flag);
            }
            Arg::Value(name) if command.is_none() => {
                command = Some(find_command(&name.to_string_lossy())?);
            }
            Arg::Short(_) | Arg::Value(_) => return Err(usage(argument.unexpected())),
        }
    }
    options.command = command.unwrap_or(Command::Train);
    let foreign = given.iter().find(|flag| !flag.commands.contains(&options.command));
    match foreign {
        Some(flag) => Err(Failure::Usage(format!(
            "--{} is not a flag of `{}`",
            flag.name,
            entry(options.command).name
        ))),
        None => Ok(Request::Run(Box::new(options))),
    }
}

/// Takes a flag's values.
fn take(flag: &Flag, parser: &mut Parser, options: &mut Options) -> Result<(), Failure> {
    let mut set = |value: &str| {
        let fault = |fault| Failure::Usage(format!("--{}: {fault}", flag.name));
        (flag.set)(options, value).map_err(fault)
    };
    if flag.value.is_empty() {
        return set("");
    }
    for _ in flag.value.split_whitespace() {
        set(&parser.value().and_then(|value| value.string()).map_err(usage)?)?;
    }
    Ok(())
}

fn usage(error: lexopt::Error) -> Failure {
    Failure::Usage(error.to_string())
}

fn find_flag(name: &str) -> Result<&'static Flag, Failure> {
    flags().find(|flag| flag.name == name).ok_or_else(|| {
        let nearest = nearest(name, flags().map(|flag| flag.name))[0];
        Failure::Usage(format!("unknown flag --{name}; the nearest is --{nearest}"))
    })
}

fn find_command(name: &str) -> Result<Command, Failure> {
    let found = COMMANDS.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.command).ok_or_else(|| {
        let nearest = nearest(name, COMMANDS.iter().map(|entry| entry.name))[0];
        Failure::Usage(format!("unknown command `{name}`; the nearest is `{nearest}`"))
    })
}

fn entry(command: Command) -> &'static CommandEntry {
    COMMANDS.iter().find(|entry| entry.command == command).expect("the table has every command")
}

fn help(command: Option<Command>) -> String {
    let mut text = String::new();
    match command {
        Some(command) => {
            let CommandEntry { name, help, .. } = entry(command);
            line(&mut text, format_args!("{name}: {help}\n\nUsage: {name} [flags]\n"));
        }
        None => {
            line(&mut text, format_args!("Usage: [command] [flags]\n\nCommands:"));
            for CommandEntry { name, help, .. } in COMMANDS {
                line(&mut text, format_args!("  {name:<22} {help}"));
            }
            line(&mut text, format_args!(""));
        }
    }
    line(&mut text, format_args!("Flags:"));
    for flag in flags().filter(|it| command.is_none_or(|here| it.commands.contains(&here))) {
        let names = format!("--{} {}", flag.name, flag.value);
        line(&mut text, format_args!("  {names:<22} {}", flag.help));
    }
    line(&mut text, format_args!("  {:<22} show this", "--help"));
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from), Defaults::default()).map_err(|failure| {
            match failure {
                Failure::Usage(message) | Failure::Work(message) => message,
                Failure::OutputClosed => String::new(),
            }
        })
    }

    #[test]
    fn flags_reach_the_options() {
        let Ok(Request::Run(options)) = parsed("--epochs 3 --lr=0.5 --threads 2 train --seed 7")
        else {
            panic!("a good command line");
        };
        assert_eq!((options.command, options.n_epochs, options.data.seed), (Command::Train, 3, 7));
        assert_eq!((options.config.learning_rate, options.config.threads), (0.5, Some(2)));
    }

    #[test]
    fn bad_usage_is_explained() {
        let message = |line: &str| parsed(line).err().unwrap_or_default();
        assert_eq!(message("--epoch 3"), "unknown flag --epoch; the nearest is --epochs");
        assert_eq!(message("tain"), "unknown command `tain`; the nearest is `train`");
        assert_eq!(message("--epochs x"), "--epochs: expected a whole number from 0, found `x`");
        assert_eq!(message("plan --epochs 1"), "--epochs is not a flag of `plan`");
        assert_eq!(
            message("bench --steps 0"),
            "--steps: expected a whole number from 1, found `0`"
        );
    }

    #[test]
    fn help_lists_the_flags_of_the_command() {
        let Ok(Request::Help(text)) = parsed("plan --help") else { panic!("help") };
        assert!(text.contains("--format") && !text.contains("--epochs"), "{text}");
    }
}
