//! How parameters are updated: `optimizer = sgd(momentum = 0.9, no_decay = ["*.b"])` and the arguments around it.

use quote::ToTokens;
use soybean_compiler::{Argument, CallPart, Optimizer, optimizer};
use soybean_plan::NonFinite;
use syn::{Expr, punctuated::Punctuated, token::Comma};

use super::{ARGUMENTS, Attribute, Known};
use crate::{
    evaluate::{Evaluator, expression::peeled},
    problem::{Message, Problems},
    source_text::source_text,
};

impl Attribute {
    /// The optimiser with all that goes on around its rule.
    pub(super) fn read_updates<'a>(&'a self, evaluator: &mut Evaluator<'a>) -> Option<Optimizer> {
        let optimizer = match self.value("optimizer") {
            Some(expression) => read_optimizer(expression, evaluator),
            None => Some(Optimizer::default()),
        };
        let mut further = Optimizer::default();
        let mut is_sound = true;
        for setting in ["clip_norm", "accumulate", "ema"] {
            if let Some(expression) = self.value(setting) {
                is_sound &= set(&mut further, setting, expression, evaluator).is_some();
            }
        }
        let choices = NonFinite::ALL.map(|it| (it.name(), it));
        let non_finite = self.choice("non_finite", &choices, &mut evaluator.problems);
        let Optimizer { rule, no_decay, .. } = optimizer?;
        let optimizer = Optimizer { rule, no_decay, non_finite: non_finite?, ..further };
        is_sound.then_some(optimizer)
    }

    /// Reports what a model that is not trained cannot have.
    pub(super) fn refuse_updates(&self, problems: &mut Problems) -> Option<Optimizer> {
        let mut is_sound = true;
        for Known { name, .. } in ARGUMENTS.iter().filter(|it| it.is_of_training) {
            let Some(expression) = self.value(name) else { continue };
            let message =
                Message::new(format!("a model of `mode = \"inference\"` has no `{name}`"))
                    .help("remove this argument, or the mode");
            problems.report(expression, &message);
            is_sound = false;
        }
        is_sound.then(Optimizer::default)
    }

    /// What stands between the brackets of the optimiser.
    pub(super) fn optimizer_settings(&self) -> Option<&Punctuated<Expr, Comma>> {
        match peeled(self.value("optimizer")?) {
            Expr::Call(call) => Some(&call.args),
            _ => None,
        }
    }

    /// Where faults of a pattern of `no_decay` belong: at the pattern, or else at what gives it.
    pub(crate) fn no_decay_tokens(&self, position: usize) -> Option<&dyn ToTokens> {
        let given = self.optimizer_settings()?.iter().find_map(|setting| match setting {
            Expr::Assign(it) if source_text(&it.left) == "no_decay" => Some(peeled(&it.right)),
            _ => None,
        })?;
        match given {
            Expr::Array(array) if position < array.elems.len() => Some(&array.elems[position]),
            other => Some(other),
        }
    }
}

/// The value of a setting; one that no setting takes is reported.
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
        evaluator.problems.report(expression, &message.into());
    }
    argument
}

/// Gives what stands around the rule its value.
fn set<'a>(
    optimizer: &mut Optimizer,
    setting: &str,
    expression: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<()> {
    let value = argument(setting, expression, evaluator)?;
    let set = optimizer.set(setting, &value);
    set.map_err(|fault| evaluator.problems.report(expression, &fault.message.into())).ok()
}

/// `sgd(momentum = 0.9)`, or `sgd` alone.
fn read_optimizer<'a>(expression: &'a Expr, evaluator: &mut Evaluator<'a>) -> Option<Optimizer> {
    let expression = peeled(expression);
    let (callee, arguments) = match expression {
        Expr::Path(_) => (expression, None),
        Expr::Call(call) => (&*call.func, Some(&call.args)),
        other => {
            let message =
                Message::new("`optimizer` must be the name of an optimizer with its settings")
                    .help("write `optimizer = sgd(momentum = 0.9)`");
            evaluator.problems.report(other, &message);
            return None;
        }
    };
    let mut settings: Vec<(String, Argument)> = Vec::new();
    for argument in arguments.into_iter().flatten() {
        let setting = read_setting(argument, evaluator)?;
        if settings.iter().any(|(name, _)| *name == setting.0) {
            let message = format!("`{}` is given twice", setting.0);
            evaluator.problems.report(argument, &message.into());
            return None;
        }
        settings.push(setting);
    }
    let fault = match optimizer(&source_text(callee), &settings) {
        Ok(optimizer) => return Some(optimizer),
        Err(fault) => fault,
    };
    let at: &dyn ToTokens = match (fault.at, arguments) {
        (CallPart::Argument(index), Some(arguments)) if index < arguments.len() => {
            &arguments[index]
        }
        _ => callee,
    };
    let mut message = Message::new(fault.message);
    if let Some(help) = fault.help {
        message = message.help(help);
    }
    evaluator.problems.report(at, &message);
    None
}

/// `momentum = 0.9`
fn read_setting<'a>(
    setting: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<(String, Argument)> {
    let (name, value) = match setting {
        Expr::Assign(assign) => (&*assign.left, &*assign.right),
        other => {
            let message = Message::new("the settings of an optimizer are written `name = value`");
            evaluator.problems.report(other, &message);
            return None;
        }
    };
    let name = source_text(name);
    let argument = argument(&name, value, evaluator)?;
    Some((name, argument))
}
