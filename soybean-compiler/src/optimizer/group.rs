//! Groups of parameters with an optimizer of their own.

use soybean_plan::{NumberRange, Pattern};

use super::{Optimizer, Rule};
use crate::diagnostic::CallDiagnostic;

/// Parameters whose names match a pattern, with the rule by which they change.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The pattern of their names; see [`Pattern`].
    pub pattern: String,
    /// Their rule.
    pub rule: Rule,
    /// The factor of the run's learning rate.
    pub learning_rate_factor: f64,
}

impl Group {
    /// Returns a group.
    ///
    /// # Errors
    /// If the factor is not above 0 and finite in single precision.
    pub fn new(
        pattern: String,
        rule: Rule,
        learning_rate_factor: f64,
    ) -> Result<Self, CallDiagnostic> {
        NumberRange::POSITIVE
            .check("learning_rate_factor", learning_rate_factor)
            .map_err(CallDiagnostic::call)?;
        Ok(Self { pattern, rule, learning_rate_factor })
    }
}

impl Optimizer {
    /// Returns the number of the first group with a parameter of this name; `None` if it changes by
    /// the rule of all others.
    #[must_use]
    pub fn group_of(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|it| Pattern::new(&it.pattern).is_match(name))
    }

    /// Returns the factor of the learning rate for a parameter of this name.
    #[must_use]
    pub fn learning_rate_factor(&self, name: &str) -> f64 {
        self.group_of(name).map_or(1.0, |it| self.groups[it].learning_rate_factor)
    }

    /// Returns whether a parameter of this name may have weight decay.
    #[must_use]
    pub fn decays(&self, name: &str) -> bool {
        match self.group_of(name) {
            Some(group) => self.groups[group].rule.weight_decay() > 0.0,
            None => !self.no_decay.iter().any(|it| Pattern::new(it).is_match(name)),
        }
    }

    /// Returns the rule for a parameter of this name.
    #[must_use]
    pub fn rule_of(&self, name: &str) -> Rule {
        match self.group_of(name) {
            Some(group) => self.groups[group].rule.clone(),
            None if self.decays(name) => self.rule.clone(),
            None => self.rule.without_decay(),
        }
    }

    /// Returns the rules of all parameters.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        [&self.rule].into_iter().chain(self.groups.iter().map(|it| &it.rule))
    }
}
