//! The table of commands and flags, from which the parser and the help texts follow.

mod calibration;
mod generate;
mod plan;
mod predictor;
mod resolve;

use std::{
    ffi::OsString,
    fmt::Write,
    path::{Path, PathBuf},
};

use lexopt::{Arg, Parser, ValueExt};
use soybean_plan::nearest_names;

use self::resolve::{resolve, resolve_training};
pub(super) use self::{
    generate::GenerateOptions,
    plan::{Format, PlanOptions},
    predictor::{PREDICTOR, WRITER},
};
use super::CommandError;
use crate::{
    TrainConfig,
    run::{
        setting::{Scope, Setting, set, some_path},
        settings,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Train,
    Plan,
    Check,
    Bench,
    Devices,
    CheckPredictor,
    BenchPredictor,
    Generate,
}

/// The request of a command line.
#[derive(Debug)]
pub(super) enum Request {
    /// Show this text.
    Help(String),
    /// Run a command.
    Run(Box<Options>),
}

/// The values of flags and of the keys of a file.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) command: Command,
    /// The settings of `train`; other commands read some of them.
    pub(super) run: TrainConfig,
    pub(super) plan: PlanOptions,
    pub(super) generate: GenerateOptions,
    /// The number of steps or predictions that `bench` measures, if it is given.
    pub(super) n_measured: Option<u64>,
    /// The cluster file that `bench` writes instead, if it is given.
    pub(super) calibrate: Option<PathBuf>,
    /// The most bytes of a kernel that a calibration measures, if they are limited.
    pub(super) max_kernel_bytes: Option<u64>,
    /// True if `check` compares bits.
    pub(super) determinism: bool,
    /// True if `check` looks for tensors that are not finite.
    pub(super) non_finite: bool,
    /// The TOML file; flags override its keys.
    file: Option<PathBuf>,
    /// The file of the resumed run with its settings; the TOML file and flags override them.
    pub(super) settings_of_run: Option<PathBuf>,
}

impl Options {
    /// Returns whether the command is a `check` without a special question.
    pub(super) fn compares_entries(&self) -> bool {
        self.command == Command::Check && !self.determinism && !self.non_finite
    }

    pub(super) fn new(run: TrainConfig) -> Self {
        Self {
            command: Command::Train,
            run,
            plan: PlanOptions::default(),
            generate: GenerateOptions::default(),
            n_measured: None,
            calibrate: None,
            max_kernel_bytes: None,
            determinism: false,
            non_finite: false,
            file: None,
            settings_of_run: None,
        }
    }
}

/// A command of a program. The first one is the default.
#[derive(Clone, Copy)]
pub(super) struct CommandEntry {
    command: Command,
    name: &'static str,
    help: &'static str,
}

pub(super) const TRAINER: &[CommandEntry] = &[
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
        help: "list the devices and libraries, and those in use",
    },
];

/// A flag, with the commands that accept it.
#[derive(Clone, Copy)]
struct Flag {
    name: &'static str,
    /// The placeholders of its values in the help, separated by spaces; empty if it takes none.
    value: &'static str,
    help: &'static str,
    commands: &'static [Command],
    target: Target,
}

/// The target of a flag's values.
#[derive(Clone, Copy)]
enum Target {
    /// A setting of the run.
    Setting(&'static Setting),
    /// An option of the command.
    Option(fn(&mut Options, &str) -> Result<(), String>),
}

impl Flag {
    /// Parses one value and stores it.
    fn set(&self, options: &mut Options, text: &str) -> Result<(), String> {
        match self.target {
            Target::Setting(setting) => (setting.set)(&mut options.run, text),
            Target::Option(set) => set(options, text),
        }
    }
}

impl From<&'static Setting> for Flag {
    fn from(setting: &'static Setting) -> Self {
        let &Setting { name, value, help, scope, .. } = setting;
        Self { name, value, help, commands: commands(scope), target: Target::Setting(setting) }
    }
}

/// Returns the commands that accept a setting of this scope.
const fn commands(scope: Scope) -> &'static [Command] {
    use Command::{Bench, BenchPredictor, Check, CheckPredictor, Generate, Train};
    match scope {
        Scope::Training => &[Train],
        Scope::TrainingSteps => &[Train, Bench],
        Scope::Updates => &[Train, Check, Bench],
        Scope::AllSteps => &[Train, Bench, BenchPredictor],
        Scope::Data => &[Train, Check, Bench],
        Scope::Model => &[Train, Check, Bench, CheckPredictor, BenchPredictor, Generate],
    }
}

const CONFIG: Flag = Flag {
    name: "config",
    value: "FILE",
    help: "a TOML file whose keys are the names of these flags; flags override it",
    commands: &[Command::Train],
    target: Target::Option(|options, text| set(&mut options.file, some_path(text))),
};

const DETERMINISM: Flag = Flag {
    name: "determinism",
    value: "",
    help: "instead repeat some training steps, and compare the bits of all results",
    commands: &[Command::Check],
    target: Target::Option(|options, _| set(&mut options.determinism, Ok(true))),
};

const NON_FINITE: Flag = Flag {
    name: "non-finite",
    value: "",
    help: "instead train one epoch, and name the first tensor that is not finite",
    commands: &[Command::Check],
    target: Target::Option(|options, _| set(&mut options.non_finite, Ok(true))),
};

/// Returns all flags, in the order of the help text.
fn all_flags() -> impl Iterator<Item = Flag> {
    let settings = settings().flat_map(|it| {
        let checks: &[Flag] = if it.name == "no-graph" { &[DETERMINISM, NON_FINITE] } else { &[] };
        [Flag::from(it)].into_iter().chain(checks.iter().copied())
    });
    [CONFIG]
        .into_iter()
        .chain(generate::FLAGS.iter().copied())
        .chain(calibration::FLAGS.iter().copied())
        .chain(settings)
        .chain(plan::FLAGS.iter().copied())
}

/// Returns the flags that any of these commands accepts.
fn flags(commands: &'static [CommandEntry]) -> impl Iterator<Item = Flag> {
    let is_accepted = |flag: &Flag| commands.iter().any(|it| flag.commands.contains(&it.command));
    all_flags().filter(is_accepted)
}

/// Parses the arguments, of which the first is the program's name.
pub(super) fn parse(
    arguments: impl Iterator<Item = OsString>,
    defaults: TrainConfig,
    commands: &'static [CommandEntry],
) -> Result<Request, CommandError> {
    let mut parser = Parser::from_iter(arguments);
    let mut command = None;
    let mut wants_help = false;
    let mut given: Vec<(Flag, Vec<String>)> = Vec::new();
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => wants_help = true,
            Arg::Long(_) | Arg::Short('o') => {
                let flag = match argument {
                    Arg::Long(name) => find_flag(name, commands)?,
                    Arg::Short(_) | Arg::Value(_) => find_flag("output", commands)?,
                };
                given.push((flag, values(&flag, &mut parser)?));
            }
            Arg::Value(name) if command.is_none() => {
                command = Some(find_command(&name.to_string_lossy(), commands)?);
            }
            Arg::Short(_) | Arg::Value(_) => return Err(usage(argument.unexpected())),
        }
    }
    if wants_help {
        return Ok(Request::Help(help(program_name(&parser), command, commands)));
    }
    let command = command.unwrap_or(commands[0].command);
    if let Some((flag, _)) = given.iter().find(|(flag, _)| !flag.commands.contains(&command)) {
        let hint = match flag.name {
            "gpus" => ": the plan is made while the program is built; set SOYBEAN_GPUS then",
            _ => "",
        };
        let (flag, command) = (flag.name, entry(command, commands).name);
        return Err(CommandError::Usage(format!("--{flag} is not a flag of `{command}`{hint}")));
    }
    let options = match command {
        Command::Train => resolve_training(defaults, &given)?,
        Command::Plan
        | Command::Check
        | Command::Bench
        | Command::Devices
        | Command::CheckPredictor
        | Command::BenchPredictor
        | Command::Generate => resolve(defaults, &given)?,
    };
    Ok(Request::Run(Box::new(Options { command, ..options })))
}

/// Returns the values after a flag; one empty value for a switch.
fn values(flag: &Flag, parser: &mut Parser) -> Result<Vec<String>, CommandError> {
    if flag.value.is_empty() {
        return Ok(vec![String::new()]);
    }
    let value = |_| parser.value().and_then(|value| value.string()).map_err(usage);
    flag.value.split_whitespace().map(value).collect()
}

fn usage(error: lexopt::Error) -> CommandError {
    CommandError::Usage(error.to_string())
}

fn find_flag(name: &str, commands: &'static [CommandEntry]) -> Result<Flag, CommandError> {
    flags(commands).find(|flag| flag.name == name).ok_or_else(|| {
        let nearest = nearest_names(name, flags(commands).map(|flag| flag.name))[0].name;
        CommandError::Usage(format!("unknown flag --{name}; the nearest is --{nearest}"))
    })
}

fn find_command(name: &str, commands: &[CommandEntry]) -> Result<Command, CommandError> {
    let found = commands.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.command).ok_or_else(|| {
        let nearest = nearest_names(name, commands.iter().map(|entry| entry.name))[0].name;
        CommandError::Usage(format!("unknown command `{name}`; the nearest is `{nearest}`"))
    })
}

fn entry(command: Command, commands: &'static [CommandEntry]) -> &'static CommandEntry {
    commands.iter().find(|entry| entry.command == command).expect("the table has every command")
}

/// Returns the name of the program's file.
fn program_name(parser: &Parser) -> &str {
    let path = Path::new(parser.bin_name().unwrap_or("program"));
    path.file_stem().and_then(|it| it.to_str()).unwrap_or("program")
}

fn help(program: &str, command: Option<Command>, commands: &'static [CommandEntry]) -> String {
    let mut text = String::new();
    match command {
        Some(command) => {
            let CommandEntry { name, help, .. } = entry(command, commands);
            line(&mut text, format_args!("{name}: {help}\n\nUsage: {program} {name} [flags]\n"));
        }
        None => {
            line(&mut text, format_args!("Usage: {program} [command] [flags]\n\nCommands:"));
            for CommandEntry { name, help, .. } in commands {
                line(&mut text, format_args!("  {name:<26} {help}"));
            }
            line(&mut text, format_args!(""));
        }
    }
    line(&mut text, format_args!("Flags:"));
    for flag in flags(commands).filter(|it| command.is_none_or(|here| it.commands.contains(&here)))
    {
        let names = format!("--{} {}", flag.name, flag.value);
        line(&mut text, format_args!("  {names:<26} {}", flag.help));
    }
    line(&mut text, format_args!("  {:<26} show this", "--help"));
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parsed_for(line, TRAINER)
    }

    fn parsed_for(line: &str, commands: &'static [CommandEntry]) -> Result<Request, String> {
        let arguments = ["program"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        parse(arguments, TrainConfig::default(), commands).map_err(|failure| match failure {
            CommandError::Usage(message) | CommandError::Failed(message) => message,
            CommandError::Stopped { message, .. } => message,
            CommandError::OutputClosed => String::new(),
        })
    }

    #[test]
    fn predictors_have_commands_of_their_own() {
        let Ok(Request::Run(options)) = parsed_for("", PREDICTOR) else { panic!("the plan") };
        assert_eq!(options.command, Command::Plan);
        let message = |line: &str| parsed_for(line, PREDICTOR).err().unwrap_or_default();
        assert_eq!(message("train"), "unknown command `train`; the nearest is `plan`");
        assert_eq!(message("bench --lr 1"), "unknown flag --lr; the nearest is --why");
        let Ok(Request::Help(text)) = parsed_for("--help", PREDICTOR) else { panic!("help") };
        assert!(text.contains("--steps") && !text.contains("--data"), "{text}");
    }

    #[test]
    fn flags_reach_the_options() {
        let Ok(Request::Run(options)) = parsed("--epochs 3 --lr=0.5 --threads 2 train --seed 7")
        else {
            panic!("a good command line");
        };
        let run = options.run;
        assert_eq!((options.command, run.epochs, run.data.seed), (Command::Train, 3, 7));
        assert_eq!((run.trainer.learning_rate, run.trainer.threads), (0.5, Some(2)));
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
        assert!(text.contains("Usage: program plan [flags]"), "{text}");
        let Ok(Request::Help(same)) = parsed("--help plan") else { panic!("help") };
        assert_eq!(same, text);
    }

    #[test]
    fn the_number_of_gpus_is_fixed_by_the_build() {
        let message = parsed("train --gpus 4").err().unwrap_or_default();
        assert!(message.starts_with("--gpus is not a flag of `train`"), "{message}");
        assert!(message.contains("SOYBEAN_GPUS"), "{message}");
    }
}
