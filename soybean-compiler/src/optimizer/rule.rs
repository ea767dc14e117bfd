//! A rule: an optimizer's declaration with the values of its settings.

use std::fmt;

use super::{
    found,
    method::{Method, Setting, SettingValue, WEIGHT_DECAY},
    methods::METHODS,
};
use crate::{builder::Argument, diagnostic::CallDiagnostic};

/// Where the learning rate is given, for those who look for it among the settings.
pub const LEARNING_RATE: &str = "the learning rate is not part of the model: write `Config { learning_rate: 0.001, ..Config::default() }`, or `train --learning-rate 0.001`";

/// An optimizer's [`Method`] with the values of its settings.
#[derive(Clone)]
pub struct Rule {
    method: &'static Method,
    /// One for each of the method's settings.
    values: Vec<SettingValue>,
}

impl Default for Rule {
    fn default() -> Self {
        Self::of(METHODS[0])
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.method.name == other.method.name && self.values == other.values
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct(self.method.name);
        for (setting, value) in self.method.settings.iter().zip(&self.values) {
            text.field(setting.name, value);
        }
        text.finish()
    }
}

impl Rule {
    /// Returns the rule with this name and its default settings.
    pub(super) fn named(name: &str) -> Result<Self, CallDiagnostic> {
        let method = METHODS.iter().find(|it| it.name == name);
        method.map(|it| Self::of(it)).ok_or_else(|| {
            let names: Vec<&str> = METHODS.iter().map(|it| it.name).collect();
            CallDiagnostic::call(format!("unknown optimizer `{name}`"))
                .with_help(format!("the optimizers are {}", names.join(", ")))
        })
    }

    fn of(method: &'static Method) -> Self {
        Self { method, values: method.settings.iter().map(|it| it.default).collect() }
    }

    /// Returns the declaration.
    #[must_use]
    pub const fn method(&self) -> &'static Method {
        self.method
    }

    /// Returns the value of a setting, if there is one of this name.
    #[must_use]
    pub fn value(&self, setting: &str) -> Option<SettingValue> {
        self.position(setting).map(|it| self.values[it])
    }

    fn position(&self, setting: &str) -> Option<usize> {
        self.method.settings.iter().position(|it| it.name == setting)
    }

    /// Returns the value of a setting that is a number.
    ///
    /// # Panics
    /// If there is no such setting.
    #[must_use]
    pub fn number(&self, setting: &str) -> f64 {
        match self.value(setting) {
            Some(SettingValue::Number(number)) => number,
            other => unreachable!("`{setting}` is declared as a number, found {other:?}"),
        }
    }

    /// Returns the value of a setting that is two numbers.
    ///
    /// # Panics
    /// If there is no such setting.
    #[must_use]
    pub fn pair(&self, setting: &str) -> (f64, f64) {
        match self.value(setting) {
            Some(SettingValue::Pair(first, second)) => (first, second),
            other => unreachable!("`{setting}` is declared as two numbers, found {other:?}"),
        }
    }

    /// Returns the value of a setting that is `true` or `false`.
    ///
    /// # Panics
    /// If there is no such setting.
    #[must_use]
    pub fn flag(&self, setting: &str) -> bool {
        match self.value(setting) {
            Some(SettingValue::Flag(flag)) => flag,
            other => unreachable!("`{setting}` is declared as a flag, found {other:?}"),
        }
    }

    /// Returns the weight decay, which is 0 for methods without one.
    #[must_use]
    pub fn weight_decay(&self) -> f64 {
        self.position(WEIGHT_DECAY).map_or(0.0, |_| self.number(WEIGHT_DECAY))
    }

    /// Returns the same rule without weight decay.
    pub(super) fn without_decay(&self) -> Self {
        let mut rule = self.clone();
        if let Some(position) = self.position(WEIGHT_DECAY) {
            rule.values[position] = SettingValue::Number(0.0);
        }
        rule
    }

    /// Returns all settings but the patterns of `no_decay`.
    pub(crate) fn settings(&self) -> Vec<(&'static str, Argument)> {
        let argument = |(setting, value): (&Setting, &SettingValue)| {
            let argument = match *value {
                SettingValue::Flag(flag) => Argument::Boolean(flag),
                SettingValue::Number(number) => Argument::Float(number),
                SettingValue::Pair(first, second) => {
                    Argument::List(vec![Argument::Float(first), Argument::Float(second)])
                }
            };
            (setting.name, argument)
        };
        self.method.settings.iter().zip(&self.values).map(argument).collect()
    }

    /// Gives a setting another value.
    pub(super) fn set(&mut self, setting: &str, value: &Argument) -> Result<(), CallDiagnostic> {
        let position = self.position(setting).ok_or_else(|| self.unknown(setting))?;
        let declared = &self.method.settings[position];
        self.values[position] = read(declared, value).ok_or_else(|| {
            let (name, expected, found) = (self.method.name, declared.expected(), found(value));
            CallDiagnostic::call(format!("`{name}`: `{setting}` must be {expected}, found {found}"))
        })?;
        Ok(())
    }

    fn unknown(&self, setting: &str) -> CallDiagnostic {
        let mut known: Vec<&str> = self.method.settings.iter().map(|it| it.name).collect();
        known.push("no_decay");
        CallDiagnostic::call(format!("`{}` has no setting `{setting}`", self.method.name))
            .with_help(match setting {
                "lr" | "learning_rate" => LEARNING_RATE.to_owned(),
                _ => format!("its settings are {}", known.join(", ")),
            })
    }

    /// Checks the settings together.
    pub(super) fn check(&self) -> Result<(), CallDiagnostic> {
        match (self.method.check)(self) {
            Some(message) => {
                Err(CallDiagnostic::call(format!("`{}`: {message}", self.method.name)))
            }
            None => Ok(()),
        }
    }
}

/// Returns the value of a setting, if it takes this argument.
fn read(setting: &Setting, argument: &Argument) -> Option<SettingValue> {
    let number = |argument: &Argument| argument.as_number().filter(|it| setting.takes(*it));
    match (setting.default, argument) {
        (SettingValue::Flag(_), Argument::Boolean(flag)) => Some(SettingValue::Flag(*flag)),
        (SettingValue::Number(_), _) => number(argument).map(SettingValue::Number),
        (SettingValue::Pair(..), Argument::List(items)) => match &items[..] {
            [first, second] => Some(SettingValue::Pair(number(first)?, number(second)?)),
            _ => None,
        },
        (SettingValue::Flag(_) | SettingValue::Pair(..), _) => None,
    }
}
