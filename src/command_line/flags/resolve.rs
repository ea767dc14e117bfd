//! The settings of a command: the program's defaults, overridden by the settings of the run that is
//! resumed, by a TOML file, and by flags.

use std::path::PathBuf;

use soybean_runtime::Error;

use super::{Flag, Options, Target};
use crate::{
    Resume, TrainConfig,
    command_line::CommandError,
    run::{
        config_file,
        setting::{Key, Setting},
    },
};

/// Resolves the settings of `train`. A run that resumes has the settings of its `config.toml`.
pub(super) fn resolve_training(
    defaults: TrainConfig,
    given: &[(Flag, Vec<String>)],
) -> Result<Options, CommandError> {
    let options = resolve(defaults.clone(), given)?;
    let Some(config) = earlier_config(&options.run) else { return Ok(options) };
    let TrainConfig { out, resume, .. } = options.run;
    let defaults = TrainConfig { out, resume, ..defaults };
    let of_run = defaults.with_run(&config).map_err(|it| usage(&it))?;
    Ok(Options { settings_of_run: Some(config), ..resolve(of_run, given)? })
}

/// Returns the settings of the run that is resumed, if its folder has them.
fn earlier_config(run: &TrainConfig) -> Option<PathBuf> {
    match run.resume {
        Resume::Auto | Resume::Must => run.out.as_deref().map(config_file).filter(|it| it.exists()),
        Resume::Never | Resume::From(_) => None,
    }
}

/// Returns the defaults, overridden by the file, overridden by the flags.
pub(super) fn resolve(
    defaults: TrainConfig,
    given: &[(Flag, Vec<String>)],
) -> Result<Options, CommandError> {
    let options = set_all(Options::new(without_steps(defaults.clone(), given)), given)?;
    let Some(file) = &options.file else { return Ok(options) };
    let chosen = defaults.with_toml(file).map_err(|it| usage(&it))?;
    set_all(Options::new(without_steps(chosen, given)), given)
}

/// Returns settings without a number of steps if a flag gives the number of epochs, which steps
/// would override.
fn without_steps(run: TrainConfig, given: &[(Flag, Vec<String>)]) -> TrainConfig {
    match given.iter().any(|it| it.0.name == "epochs") {
        true => TrainConfig { steps: None, ..run },
        false => run,
    }
}

/// Sets the values of flags. A list on the command line replaces the earlier one.
fn set_all(mut options: Options, given: &[(Flag, Vec<String>)]) -> Result<Options, CommandError> {
    for (number, (flag, values)) in given.iter().enumerate() {
        let is_first = given[..number].iter().all(|it| it.0.name != flag.name);
        if let Target::Setting(Setting { key: Key::List { clear, .. }, .. }) = flag.target
            && is_first
        {
            clear(&mut options.run);
        }
        for value in values {
            let fault = |fault| CommandError::Usage(format!("--{}: {fault}", flag.name));
            flag.set(&mut options, value).map_err(fault)?;
        }
        // Steps in the program's defaults do not count as a number of steps to measure.
        if flag.name == "steps" {
            options.n_measured = options.run.steps;
        }
    }
    Ok(options)
}

fn usage(error: &Error) -> CommandError {
    CommandError::Usage(error.to_string())
}
