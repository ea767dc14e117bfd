//! A setting of a run, and the parsers of values.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    str::FromStr,
};

use soybean_plan::NumberRange;

use super::TrainConfig;

/// One setting of a [`TrainConfig`].
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) on_resume: OnResume,
    /// The placeholder of its value in the help; empty for a switch.
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
    pub(crate) scope: Scope,
    /// Parses one value and stores it.
    pub(crate) set: fn(&mut TrainConfig, &str) -> Result<(), String>,
    pub(crate) key: Key,
}

/// The treatment of a setting that differs from that of the run that is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnResume {
    /// It decides on the results of steps: a difference is an error.
    Same,
    /// It decides on the end of the run, its output or its speed: a difference is told.
    Noted,
    /// It says where the run is and how it starts.
    Free,
}

/// The commands that read a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Training.
    Training,
    /// Training, and measurements of training steps.
    TrainingSteps,
    /// Everything that updates the parameters.
    Updates,
    /// Training, and all measurements.
    AllSteps,
    /// Everything that reads data.
    Data,
    /// Everything that runs the model.
    Model,
}

/// The value of a setting in a TOML file.
pub(crate) enum Key {
    /// A boolean.
    Switch(fn(&TrainConfig) -> bool),
    /// A number or a string; absent if `None`.
    Value(fn(&TrainConfig) -> Option<Value>),
    /// A list of strings. On the command line the flag may be repeated.
    List { clear: fn(&mut TrainConfig), values: fn(&TrainConfig) -> &[String] },
}

/// A value in a TOML file.
pub(crate) enum Value {
    Number(String),
    Text(String),
}

impl Value {
    /// Returns the value as written on a command line.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

/// Stores a parsed value.
pub(crate) fn set<T>(target: &mut T, value: Result<T, String>) -> Result<(), String> {
    *target = value?;
    Ok(())
}

/// Parses the path of a file or folder.
pub(crate) fn some_path(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Err("expected a path, found an empty text".to_owned()),
        _ => Ok(Some(text.into())),
    }
}

/// Parses a whole number.
pub(crate) fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0, found `{text}`"))
}

/// Parses a whole number that is not 0.
pub(crate) fn positive<N: FromStr + PartialEq + Default>(text: &str) -> Result<N, String> {
    let found = number(text).ok().filter(|it| *it != N::default());
    found.ok_or_else(|| format!("expected a whole number from 1, found `{text}`"))
}

/// Parses a number of steps or evaluations, where 0 means never.
pub(super) fn or_never(text: &str) -> Result<Option<u64>, String> {
    number(text).map(|it| Some(it).filter(|it| *it > 0))
}

/// Parses a number that is not negative.
pub(crate) fn from_zero<N: FromStr + Into<f64> + Copy>(text: &str) -> Result<N, String> {
    within(text, NumberRange::NON_NEGATIVE)
}

/// Parses a number of a range.
pub(crate) fn within<N: FromStr + Into<f64> + Copy>(
    text: &str,
    range: NumberRange,
) -> Result<N, String> {
    let found = text.parse().ok().filter(|it: &N| range.contains((*it).into()));
    found.ok_or_else(|| format!("expected a number {range}, found `{text}`"))
}

/// Parses a switch: the flag has no value, its key has a boolean.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("expected true or false, found `{text}`")),
    }
}

pub(super) fn path(path: &Path) -> Value {
    Value::Text(path.display().to_string())
}

pub(super) fn optional(number: Option<u64>) -> Option<Value> {
    number.map(|it| Value::Number(it.to_string()))
}

/// Formats a number so that TOML reads a float.
pub(super) fn float<N: Debug>(number: N) -> Value {
    Value::Number(format!("{number:?}"))
}
