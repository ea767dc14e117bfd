//! Optimizers: the rule by which parameters change, with clipping, accumulation, averaging and the
//! treatment of steps that are not finite.

mod faults;
mod first_update;
mod group;
mod method;
mod methods;
mod operands;
pub(crate) mod program;
mod rule;

use soybean_plan::{NonFinite, NumberRange, Pattern};

use crate::{
    builder::Argument,
    diagnostic::{CallDiagnostic, CallPart},
};

pub use group::Group;
pub(crate) use method::{GRADIENT, Layout};
pub use method::{Method, Setting, SettingValue};
pub use methods::METHODS;
pub use rule::{LEARNING_RATE, Rule};

/// The settings of updates.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    /// The rule that computes a parameter from its gradient.
    pub rule: Rule,
    /// Patterns of the names of parameters without weight decay; see [`Pattern`].
    pub no_decay: Vec<String>,
    /// Groups of parameters with rules of their own. A parameter belongs to the first group whose
    /// pattern its name matches.
    pub groups: Vec<Group>,
    /// Patterns of the names of parameters that keep their values.
    pub freeze: Vec<String>,
    /// Patterns of the names of inputs whose gradients each step keeps for the host.
    pub input_gradients: Vec<String>,
    /// The largest 2-norm of all gradients together. Larger gradients are scaled down to it.
    pub clip_norm: Option<f64>,
    /// The number of steps that share an update, which takes the mean of their gradients.
    pub accumulate: u64,
    /// The decay of the parameters' moving averages, if they are kept.
    pub ema: Option<f64>,
    /// The treatment of steps that are not finite.
    pub non_finite: NonFinite,
}

impl From<Rule> for Optimizer {
    fn from(rule: Rule) -> Self {
        Self {
            rule,
            no_decay: Vec::new(),
            groups: Vec::new(),
            freeze: Vec::new(),
            input_gradients: Vec::new(),
            clip_norm: None,
            accumulate: 1,
            ema: None,
            non_finite: NonFinite::Stop,
        }
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Rule::default().into()
    }
}

/// Returns the optimizer with this name and these settings.
///
/// # Errors
/// If there is no such optimizer or setting, or a setting does not take its value.
/// [`CallPart::Argument`] numbers the setting.
pub fn optimizer(name: &str, settings: &[(String, Argument)]) -> Result<Optimizer, CallDiagnostic> {
    let mut optimizer = Optimizer::from(Rule::named(name)?);
    for (position, (setting, value)) in settings.iter().enumerate() {
        let set = match setting.as_str() {
            "no_decay" => {
                let place = format!("`{name}`: ");
                patterns(&place, setting, value).map(|it| optimizer.no_decay = it)
            }
            _ => optimizer.rule.set(setting, value),
        };
        set.map_err(|fault| CallDiagnostic { at: CallPart::Argument(position), ..fault })?;
    }
    optimizer.rule.check()?;
    if let Some(position) = settings.iter().position(|it| it.0 == "no_decay")
        && optimizer.rule.weight_decay() == 0.0
    {
        let message = format!("`{name}`: `no_decay` needs a `weight_decay` above 0");
        return Err(CallDiagnostic::argument(position, message));
    }
    Ok(optimizer)
}

/// Returns the patterns that a setting lists. Messages begin with `place`.
fn patterns(place: &str, setting: &str, value: &Argument) -> Result<Vec<String>, CallDiagnostic> {
    let wrong = |found: &Argument| {
        let message = "a list of strings, which are names of parameters with `*` for any letters";
        CallDiagnostic::call(format!(
            "{place}`{setting}` must be {message}; found {}",
            found.kind()
        ))
        .with_help(format!("write `{setting} = [\"*.b\", \"embed*\"]`"))
    };
    let Argument::List(members) = value else { return Err(wrong(value)) };
    let pattern = |member: &Argument| match member {
        Argument::Text(pattern) => Ok(pattern.clone()),
        other => Err(wrong(other)),
    };
    members.iter().map(pattern).collect()
}

impl Optimizer {
    /// The names of the settings besides the rule's: see [`Self::set`].
    pub const SETTINGS: [&str; 6] =
        ["freeze", "input_gradients", "clip_norm", "accumulate", "ema", "non_finite"];

    /// Returns the name and settings from which [`optimizer`] restores the rule and its masks.
    #[must_use]
    pub fn settings(&self) -> (&'static str, Vec<(&'static str, Argument)>) {
        let mut settings = self.rule.settings();
        if !self.no_decay.is_empty() {
            settings.push(("no_decay", list(&self.no_decay)));
        }
        (self.rule.method().name, settings)
    }

    /// Returns the settings besides the rule's that differ from their defaults, for [`Self::set`].
    #[must_use]
    pub fn further_settings(&self) -> Vec<(&'static str, Argument)> {
        let mut settings = Vec::new();
        if !self.freeze.is_empty() {
            settings.push(("freeze", list(&self.freeze)));
        }
        if !self.input_gradients.is_empty() {
            settings.push(("input_gradients", list(&self.input_gradients)));
        }
        settings.extend(self.clip_norm.map(|it| ("clip_norm", Argument::Float(it))));
        if let Some(n) = i64::try_from(self.accumulate).ok().filter(|it| *it != 1) {
            settings.push(("accumulate", Argument::Integer(n)));
        }
        settings.extend(self.ema.map(|it| ("ema", Argument::Float(it))));
        if self.non_finite != NonFinite::Stop {
            settings.push(("non_finite", Argument::Text(self.non_finite.name().to_owned())));
        }
        settings
    }

    /// Sets one of [`Self::SETTINGS`].
    ///
    /// # Errors
    /// If there is no such setting, or it does not take the value.
    pub fn set(&mut self, setting: &str, value: &Argument) -> Result<(), CallDiagnostic> {
        let number = value.as_number();
        let wrong = |what: &str| {
            CallDiagnostic::call(format!("`{setting}` must be {what}, found {}", found(value)))
        };
        let in_range = |range: NumberRange| {
            let number = number.filter(|it| range.contains(*it));
            number.ok_or_else(|| wrong(&format!("a number {range}")))
        };
        match (setting, value) {
            ("freeze", _) => self.freeze = patterns("", setting, value)?,
            ("input_gradients", _) => self.input_gradients = patterns("", setting, value)?,
            ("clip_norm", _) => {
                self.clip_norm = Some(in_range(NumberRange::POSITIVE)?);
            }
            ("accumulate", _) => {
                let n_steps = match value {
                    Argument::Integer(it) => u64::try_from(*it).ok(),
                    _ => None,
                };
                let n_steps = n_steps.filter(|it| (1..=MAX_ACCUMULATE).contains(it));
                let expected = format!("an integer from 1 to {MAX_ACCUMULATE}");
                self.accumulate = n_steps.ok_or_else(|| wrong(&expected))?;
            }
            ("ema", _) => {
                self.ema = Some(in_range(NumberRange::DECAY)?);
            }
            ("non_finite", Argument::Text(name)) => {
                let choice =
                    name.parse().map_err(|it| CallDiagnostic::call(format!("`non_finite` {it}")));
                self.non_finite = choice?;
            }
            ("non_finite", _) => return Err(wrong(&NonFinite::expected())),
            _ => return Err(CallDiagnostic::call(format!("unknown setting `{setting}`"))),
        }
        Ok(())
    }

    /// Returns whether a parameter of this name changes.
    #[must_use]
    pub fn trains(&self, name: &str) -> bool {
        !self.freeze.iter().any(|it| Pattern::new(it).is_match(name))
    }

    /// Returns whether steps keep the gradient of an input of this name.
    pub(crate) fn keeps_input_gradient(&self, name: &str) -> bool {
        self.input_gradients.iter().any(|it| Pattern::new(it).is_match(name))
    }

    /// Returns whether updates read the norm of all gradients.
    pub(crate) const fn needs_norm(&self) -> bool {
        self.clip_norm.is_some() || self.non_finite.skips()
    }
}

/// Returns patterns as the value of a setting.
fn list(patterns: &[String]) -> Argument {
    Argument::List(patterns.iter().map(|it| Argument::Text(it.clone())).collect())
}

/// Describes the value of a setting, for error messages.
fn found(value: &Argument) -> String {
    match value {
        Argument::Integer(it) => it.to_string(),
        Argument::Float(it) => format!("{it:?}"),
        other => other.kind().to_owned(),
    }
}

/// The largest number of steps that share an update.
const MAX_ACCUMULATE: u64 = 1 << 16;
