//! The rules by which optimisers change parameters, with their settings. Definitions and defaults are `PyTorch`'s.

use super::{found, single};
use crate::{
    builder::Argument,
    diagnostic::{CallPart, Diagnostic},
};

/// What an optimiser makes of a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Stochastic gradient descent.
    Sgd {
        /// How much of the last update goes into the next.
        momentum: f64,
        /// Whether the gradient looks ahead along the momentum.
        nesterov: bool,
        /// The L2 penalty.
        weight_decay: f64,
    },
    /// Adam: Kingma & Ba 2015.
    Adam {
        /// How slowly the means of the gradient and of its square change.
        betas: (f64, f64),
        /// What is added to the denominator.
        eps: f64,
        /// The penalty.
        weight_decay: f64,
        /// Whether the penalty acts on the parameter itself (`adamw`, Loshchilov & Hutter 2019), not through the gradient.
        is_decoupled: bool,
    },
}

impl Default for Rule {
    fn default() -> Self {
        Self::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// The optimisers' names.
const NAMES: [&str; 3] = ["sgd", "adam", "adamw"];

impl Rule {
    /// The rule with this name and its default settings.
    pub(super) fn named(name: &str) -> Result<Self, Diagnostic> {
        let (betas, eps) = ((0.9, 0.999), 1e-8);
        Ok(match name {
            "sgd" => Self::default(),
            "adam" => Self::Adam { betas, eps, weight_decay: 0.0, is_decoupled: false },
            "adamw" => Self::Adam { betas, eps, weight_decay: 1e-2, is_decoupled: true },
            _ => {
                let help = format!("the optimizers are {}", NAMES.join(", "));
                return Err(Diagnostic::call(format!("unknown optimizer `{name}`")).with_help(help));
            }
        })
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::Adam { is_decoupled: false, .. } => "adam",
            Self::Adam { is_decoupled: true, .. } => "adamw",
        }
    }

    pub(super) const fn weight_decay(&self) -> f64 {
        match *self {
            Self::Sgd { weight_decay, .. } | Self::Adam { weight_decay, .. } => weight_decay,
        }
    }

    /// The same rule without weight decay.
    pub(super) const fn without_decay(mut self) -> Self {
        match &mut self {
            Self::Sgd { weight_decay, .. } | Self::Adam { weight_decay, .. } => *weight_decay = 0.0,
        }
        self
    }

    /// The names of the states that it keeps of each parameter.
    pub(super) fn states(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd { momentum: 0.0, .. } => &[],
            Self::Sgd { .. } => &["momentum"],
            Self::Adam { .. } => &["mean", "square_mean"],
        }
    }

    /// All settings but the patterns of `no_decay`.
    pub(super) fn settings(&self) -> Vec<(&'static str, Argument)> {
        let number = Argument::Float;
        match *self {
            Self::Sgd { momentum, nesterov, weight_decay } => vec![
                ("momentum", number(momentum)),
                ("nesterov", Argument::Boolean(nesterov)),
                ("weight_decay", number(weight_decay)),
            ],
            Self::Adam { betas, eps, weight_decay, is_decoupled: _ } => vec![
                ("betas", Argument::List(vec![number(betas.0), number(betas.1)])),
                ("eps", number(eps)),
                ("weight_decay", number(weight_decay)),
            ],
        }
    }

    /// Gives a setting another value.
    pub(super) fn set(&mut self, setting: &str, value: &Argument) -> Result<(), Diagnostic> {
        let name = self.name();
        let wrong = |what: &str| {
            Diagnostic::call(format!(
                "`{name}`: `{setting}` must be {what}, found {}",
                found(value)
            ))
        };
        let number = || {
            let number = value.as_number().filter(|it| *it >= 0.0 && single(*it).is_finite());
            number.ok_or_else(|| wrong("a number from 0 to 3.4e38"))
        };
        match (self, setting) {
            (Self::Sgd { momentum, .. }, "momentum") => *momentum = number()?,
            (Self::Sgd { nesterov, .. }, "nesterov") => match value {
                Argument::Boolean(flag) => *nesterov = *flag,
                _ => return Err(wrong("`true` or `false`")),
            },
            (Self::Sgd { weight_decay, .. } | Self::Adam { weight_decay, .. }, "weight_decay") => {
                *weight_decay = number()?;
            }
            (Self::Adam { eps, .. }, "eps") => *eps = number()?,
            (Self::Adam { betas, .. }, "betas") => {
                let pair = pair_below_one(value);
                let expected = "two numbers from 0 to below 1 in single precision";
                *betas = pair.ok_or_else(|| wrong(expected))?;
            }
            (rule, _) => return Err(rule.unknown(setting)),
        }
        Ok(())
    }

    fn unknown(self, setting: &str) -> Diagnostic {
        let name = self.name();
        let mut known: Vec<&str> = self.settings().into_iter().map(|it| it.0).collect();
        known.push("no_decay");
        Diagnostic::call(format!("`{name}` has no setting `{setting}`"))
            .with_help(format!("its settings are {}", known.join(", ")))
    }

    /// Checks what several settings must have in common.
    pub(super) fn check(&self) -> Result<(), Diagnostic> {
        match *self {
            Self::Sgd { nesterov: true, momentum, .. } if momentum <= 0.0 => {
                let message = "`sgd`: `nesterov` needs a momentum above 0";
                Err(Diagnostic { at: CallPart::Call, message: message.to_owned(), help: None })
            }
            Self::Sgd { .. } | Self::Adam { .. } => Ok(()),
        }
    }
}

fn pair_below_one(value: &Argument) -> Option<(f64, f64)> {
    let Argument::List(items) = value else { return None };
    let [first, second] = &items[..] else { return None };
    let valid = |item: &Argument| item.as_number().filter(|it| *it >= 0.0 && single(*it) < 1.0);
    Some((valid(first)?, valid(second)?))
}
