//! Declarations of optimizers: all that the attribute, recipes, error messages, documentation and
//! the training step know of one.
//!
//! An optimizer is one [`Method`], in a file of its own below `methods/` and in the list there.

use std::fmt;

use soybean_plan::{NumberRange, Register, RunScalar};

use super::{operands::Operands, rule::Rule};
use crate::signature::{FactorId, factor_id};

/// The declaration of an optimizer.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The name in the model's attribute.
    pub name: &'static str,
    /// The method in a few words.
    pub summary: &'static str,
    /// The publication or program whose definition is followed.
    pub source: &'static str,
    /// The settings, in the order of recipes and messages. One called `weight_decay` is masked by
    /// `no_decay`.
    pub settings: &'static [Setting],
    /// True if parameters keep their values, so that factors of the learning rate and moving
    /// averages would have no effect.
    pub(crate) keeps_parameters: bool,
    /// Returns what is wrong with a combination of settings that are sound each.
    pub(crate) check: fn(&Rule) -> Option<&'static str>,
    /// Returns the states of a parameter with this number of dims. All start at 0.
    pub(crate) states: fn(&Rule, n_dims: usize) -> Vec<State>,
    /// Returns the run-time scalars that the programs read besides the learning rate.
    pub(crate) scalars: fn(&Rule) -> Vec<RunScalar>,
    /// Returns the sums over elements that the update reads, each after those that it reads itself.
    pub(crate) statistics: fn(&Rule, n_dims: usize) -> Vec<Statistic>,
    /// Writes the update of one element. Returns the next values of the parameter, then of each
    /// state.
    pub(crate) update: fn(&Rule, &mut Operands<'_>) -> Vec<Register>,
}

impl Method {
    /// A method without settings and states, for the fields that a declaration leaves out.
    pub(super) const PLAIN: Self = Self {
        name: "",
        summary: "",
        source: "",
        settings: &[],
        keeps_parameters: false,
        check: |_| None,
        states: |_, _| Vec::new(),
        scalars: |_| Vec::new(),
        statistics: |_, _| Vec::new(),
        update: |_, it| vec![it.parameter],
    };
}

/// A tensor that is kept from step to step for each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The name after the parameter's: `square_mean` of `dense.w.square_mean`.
    pub(crate) name: &'static str,
    pub(crate) layout: Layout,
}

impl State {
    /// Declares a state of the parameter's shape.
    pub(crate) const fn full(name: &'static str) -> Self {
        Self { name, layout: Layout::Elements }
    }
}

/// A sum that is computed in each step for each parameter, over elements of the parameter or of
/// smaller tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statistic {
    pub(crate) name: &'static str,
    /// The index space over which the terms are computed.
    pub(crate) over: Layout,
    /// The dims that remain.
    pub(crate) kept: Layout,
    /// Writes the term of one point of the index space.
    pub(crate) term: fn(&Rule, &mut Operands<'_>) -> Register,
}

/// The dims of a parameter that a state or statistic has. The last two dims are those of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All: one number for each element.
    Elements,
    /// All but the last: one number for each row.
    Rows,
    /// All but the one before the last: one number for each column.
    Columns,
    /// All but the last two: one number for each matrix.
    Matrices,
    /// None: one number.
    Parameter,
}

impl Layout {
    /// Returns the positions of the dims, given their number in the parameter.
    pub(crate) fn dims(self, n_dims: usize) -> Vec<FactorId> {
        let has = |dim: &usize| match self {
            Self::Elements => true,
            Self::Rows => dim + 1 != n_dims,
            Self::Columns => dim + 2 != n_dims,
            Self::Matrices => dim + 2 < n_dims,
            Self::Parameter => false,
        };
        (0..n_dims).filter(has).map(factor_id).collect()
    }
}

/// A setting of an optimizer.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// The value without the setting.
    pub default: SettingValue,
    /// The numbers that it takes.
    range: NumberRange,
    /// The setting in a few words.
    pub summary: &'static str,
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingValue {
    /// `true` or `false`.
    Flag(bool),
    /// A number.
    Number(f64),
    /// Two numbers.
    Pair(f64, f64),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Pair(first, second) => write!(f, "({first:?}, {second:?})"),
        }
    }
}

impl Setting {
    /// Declares a setting that is `true` or `false`.
    pub(super) const fn flag(name: &'static str, default: bool, summary: &'static str) -> Self {
        let default = SettingValue::Flag(default);
        Self { name, default, range: NumberRange::NON_NEGATIVE, summary }
    }

    /// Declares a setting that is a number.
    pub(super) const fn number(
        name: &'static str,
        default: f64,
        range: NumberRange,
        summary: &'static str,
    ) -> Self {
        Self { name, default: SettingValue::Number(default), range, summary }
    }

    /// Declares a setting that is two numbers.
    pub(super) const fn pair(
        name: &'static str,
        default: (f64, f64),
        range: NumberRange,
        summary: &'static str,
    ) -> Self {
        Self { name, default: SettingValue::Pair(default.0, default.1), range, summary }
    }

    /// Declares a penalty on large parameters, which `no_decay` masks.
    pub(super) const fn weight_decay(default: f64, summary: &'static str) -> Self {
        Self::number(WEIGHT_DECAY, default, NumberRange::NON_NEGATIVE, summary)
    }

    /// Returns whether the setting takes this number.
    pub(super) fn takes(&self, number: f64) -> bool {
        self.range.contains(number)
    }

    /// Returns the values that the setting takes, such as "a number from 0 to 3.4e38".
    #[must_use]
    pub fn expected(&self) -> String {
        match self.default {
            SettingValue::Flag(_) => "`true` or `false`".to_owned(),
            SettingValue::Number(_) => format!("a number {}", self.range),
            SettingValue::Pair(..) => format!("two numbers {}", self.range),
        }
    }
}

/// The state that is the gradient of a parameter or an input, for the host.
pub(crate) const GRADIENT: &str = "gradient";

/// The setting that `no_decay` masks.
pub(super) const WEIGHT_DECAY: &str = "weight_decay";
