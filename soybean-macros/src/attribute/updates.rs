//! The arguments of updates: `optimizer = sgd(momentum = 0.9, no_decay = ["*.b"])`, `clip_norm` and
//! others.

use quote::ToTokens;
use soybean_compiler::{Argument, CallPart, Group, Optimizer, optimizer};
use soybean_plan::NonFinite;
use syn::{Expr, punctuated::Punctuated, token::Comma};

use super::Attribute;
use crate::{
    diagnostic::Diagnostic,
    evaluate::{Evaluator, expression::peeled},
    source_text::source_text,
};

impl Attribute {
    /// Reads the optimizer with all settings of updates.
    pub(super) fn read_updates<'a>(&'a self, evaluator: &mut Evaluator<'a>) -> Option<Optimizer> {
        let optimizer = match self.value("optimizer") {
            Some(expression) => read_optimizer(expression, evaluator),
            None => Some(Optimizer::default()),
        };
        let mut further = Optimizer::default();
        let mut is_sound = true;
        for setting in ["freeze", "input_gradients", "clip_norm", "accumulate", "ema"] {
            if let Some(expression) = self.value(setting) {
                is_sound &= set(&mut further, setting, expression, evaluator).is_some();
            }
        }
        let choices = NonFinite::ALL.map(|it| (it.name(), it));
        let non_finite = self.choice("non_finite", &choices, &mut evaluator.diagnostics);
        let groups = self.read_groups(evaluator);
        let Optimizer { rule, no_decay, .. } = optimizer?;
        let (groups, non_finite) = (groups?, non_finite?);
        let optimizer = Optimizer { rule, no_decay, groups, non_finite, ..further };
        is_sound.then_some(optimizer)
    }

    /// Returns the expressions in the parentheses of the optimizer.
    pub(super) fn optimizer_settings(&self) -> Option<&Punctuated<Expr, Comma>> {
        match peeled(self.value("optimizer")?) {
            Expr::Call(call) => Some(&call.args),
            _ => None,
        }
    }

    /// Returns the groups as the user wrote them, each with its members.
    fn group_expressions(&self) -> Vec<&Expr> {
        match self.value("groups").map(peeled) {
            Some(Expr::Array(list)) => list.elems.iter().collect(),
            Some(other) => vec![other],
            None => Vec::new(),
        }
    }

    /// Returns the expressions in the parentheses of the groups' optimizers, and the groups' own
    /// settings.
    pub(super) fn group_settings(&self) -> impl Iterator<Item = &Expr> {
        let members = self.group_expressions().into_iter().flat_map(|group| match group {
            Expr::Tuple(it) => it.elems.iter().collect(),
            _ => Vec::new(),
        });
        members.flat_map(|member| match member {
            Expr::Call(call) => call.args.iter().collect(),
            other => vec![other],
        })
    }

    /// Reads `[("*.bias", sgd(momentum = 0.9), learning_rate_factor = 2.0)]`.
    fn read_groups<'a>(&'a self, evaluator: &mut Evaluator<'a>) -> Option<Vec<Group>> {
        let groups: Vec<Option<Group>> =
            self.group_expressions().into_iter().map(|it| read_group(it, evaluator)).collect();
        groups.into_iter().collect()
    }

    /// Returns the tokens for errors about a group's pattern.
    pub(crate) fn group_tokens(&self, position: usize) -> Option<&dyn ToTokens> {
        match self.group_expressions().into_iter().nth(position)? {
            Expr::Tuple(group) => group.elems.first().map(|it| it as &dyn ToTokens),
            other => Some(other),
        }
    }

    /// Returns the tokens for errors about a pattern of `no_decay`: the pattern, or else the whole
    /// value.
    pub(crate) fn no_decay_tokens(&self, position: usize) -> Option<&dyn ToTokens> {
        let given = self.optimizer_settings()?.iter().find_map(|setting| match setting {
            Expr::Assign(it) if source_text(&it.left) == "no_decay" => Some(peeled(&it.right)),
            _ => None,
        })?;
        Some(pattern_tokens(given, position))
    }

    /// Returns the tokens for errors about a pattern in the list of an argument: the pattern, or
    /// else the whole value.
    pub(crate) fn tokens_in(&self, argument: &str, position: usize) -> Option<&dyn ToTokens> {
        Some(pattern_tokens(peeled(self.value(argument)?), position))
    }
}

/// Returns a pattern in a list, or the whole value if the list is not written out.
fn pattern_tokens(list: &Expr, position: usize) -> &dyn ToTokens {
    match list {
        Expr::Array(array) if position < array.elems.len() => &array.elems[position],
        other => other,
    }
}

/// Evaluates a setting, and reports a value that no setting takes.
fn argument<'a>(
    setting: &str,
    expression: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<Argument> {
    let value = evaluator.constant(expression);
    let argument = value.to_argument();
    if argument.is_none() && !value.is_poisoned() {
        let expected = "a number, `true` or `false`, a string or a list of them";
        let message = format!("`{setting}` must be {expected}, found {}", value.kind());
        evaluator.diagnostics.report(expression, &message.into());
    }
    argument
}

/// Reads the patterns of an entry's `freeze`.
pub(super) fn read_patterns<'a>(
    expression: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<Vec<String>> {
    let mut frozen = Optimizer::default();
    set(&mut frozen, "freeze", expression, evaluator)?;
    Some(frozen.freeze)
}

/// Sets one of [`Optimizer::SETTINGS`].
fn set<'a>(
    optimizer: &mut Optimizer,
    setting: &str,
    expression: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<()> {
    let value = argument(setting, expression, evaluator)?;
    let set = optimizer.set(setting, &value);
    set.map_err(|diagnostic| evaluator.diagnostics.report(expression, &diagnostic.message.into()))
        .ok()
}

/// Reads a group of parameters: a pattern, an optimizer, and the factor of the learning rate.
fn read_group<'a>(expression: &'a Expr, evaluator: &mut Evaluator<'a>) -> Option<Group> {
    let members: Vec<&Expr> = match expression {
        Expr::Tuple(it) => it.elems.iter().collect(),
        _ => Vec::new(),
    };
    let [pattern, rule, further @ ..] = &members[..] else {
        let found = source_text(expression);
        let message = Diagnostic::new(format!(
            "`groups` must be a list of patterns with optimizers, found {found}"
        ));
        let help =
            "write `groups = [(\"*.bias\", sgd(momentum = 0.9), learning_rate_factor = 2.0)]`";
        evaluator.diagnostics.report(expression, &message.help(help));
        return None;
    };
    let text = match argument("groups", pattern, evaluator)? {
        Argument::Text(text) => text,
        other => {
            let message = format!("a group's pattern must be a string, found {}", other.kind());
            evaluator.diagnostics.report(pattern, &message.into());
            return None;
        }
    };
    let Optimizer { rule: of_group, no_decay, .. } = read_optimizer(rule, evaluator)?;
    if !no_decay.is_empty() {
        let message = Diagnostic::new("the optimizer of a group has no `no_decay`")
            .help("add a group with `weight_decay = 0.0` before this one");
        evaluator.diagnostics.report(rule, &message);
        return None;
    }
    let (at, factor) = match further {
        [] => return Group::new(text, of_group, 1.0).ok(),
        [setting] => (setting, read_setting(setting, evaluator)?),
        [_, other, ..] => (other, (String::new(), Argument::All)),
    };
    let group = match (&*factor.0, factor.1.as_number()) {
        ("learning_rate_factor", Some(number)) => {
            Group::new(text, of_group, number).map_err(|fault| fault.message)
        }
        ("learning_rate_factor", None) => {
            Err(format!("`learning_rate_factor` must be a number, found {}", factor.1.kind()))
        }
        _ => Err("a group has one setting, `learning_rate_factor`".to_owned()),
    };
    group.map_err(|message| evaluator.diagnostics.report(at, &message.into())).ok()
}

/// Reads `sgd(momentum = 0.9)`, or `sgd` alone.
fn read_optimizer<'a>(expression: &'a Expr, evaluator: &mut Evaluator<'a>) -> Option<Optimizer> {
    let expression = peeled(expression);
    let (callee, arguments) = match expression {
        Expr::Path(_) => (expression, None),
        Expr::Call(call) => (&*call.func, Some(&call.args)),
        other => {
            let message =
                Diagnostic::new("`optimizer` must be the name of an optimizer with its settings")
                    .help("write `optimizer = sgd(momentum = 0.9)`");
            evaluator.diagnostics.report(other, &message);
            return None;
        }
    };
    let mut settings: Vec<(String, Argument)> = Vec::new();
    for argument in arguments.into_iter().flatten() {
        let setting = read_setting(argument, evaluator)?;
        if settings.iter().any(|(name, _)| *name == setting.0) {
            let message = format!("`{}` is given twice", setting.0);
            evaluator.diagnostics.report(argument, &message.into());
            return None;
        }
        settings.push(setting);
    }
    let diagnostic = match optimizer(&source_text(callee), &settings) {
        Ok(optimizer) => return Some(optimizer),
        Err(diagnostic) => diagnostic,
    };
    let at: &dyn ToTokens = match (diagnostic.at, arguments) {
        (CallPart::Argument(index), Some(arguments)) if index < arguments.len() => {
            &arguments[index]
        }
        _ => callee,
    };
    let mut message = Diagnostic::new(diagnostic.message);
    if let Some(help) = diagnostic.help {
        message = message.help(help);
    }
    evaluator.diagnostics.report(at, &message);
    None
}

/// Reads `momentum = 0.9`.
fn read_setting<'a>(
    setting: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<(String, Argument)> {
    let (name, value) = match setting {
        Expr::Assign(assign) => (&*assign.left, &*assign.right),
        other => {
            let message =
                Diagnostic::new("the settings of an optimizer are written `name = value`");
            evaluator.diagnostics.report(other, &message);
            return None;
        }
    };
    let name = source_text(name);
    let argument = argument(&name, value, evaluator)?;
    Some((name, argument))
}
