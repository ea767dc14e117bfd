//! How parameters are updated: `optimizer = sgd(momentum = 0.9, no_decay = ["*.b"])` and the arguments around it.

use quote::ToTokens;
use soybean_compiler::{Argument, Optimizer, Place, optimizer};
use soybean_plan::NonFinite;
use syn::{Expr, punctuated::Punctuated, token::Comma};

use super::{Attribute, read_choice};
use crate::{
    evaluate::{Evaluator, expression::peeled},
    problem::Message,
    source_text::source_text,
};

impl Attribute {
    /// The optimiser with all that goes on around its rule.
    pub(super) fn read_updates<'a>(&'a self, evaluator: &mut Evaluator<'a>) -> Option<Optimizer> {
        let optimizer = match &self.optimizer {
            Some(expression) => read_optimizer(expression, evaluator),
            None => Some(Optimizer::default()),
        };
        let mut further = Optimizer::default();
        let numbers =
            [("clip_norm", &self.clip_norm), ("accumulate", &self.accumulate), ("ema", &self.ema)];
        let mut is_sound = true;
        for (setting, expression) in numbers {
            if let Some(expression) = expression {
                is_sound &= set(&mut further, setting, expression, evaluator).is_some();
            }
        }
        let choices = NonFinite::ALL.map(|it| (it.name(), it));
        let non_finite = match &self.non_finite {
            Some(expression) => read_choice("non_finite", expression, &choices, evaluator),
            None => Some(NonFinite::Stop),
        };
        let Optimizer { rule, no_decay, .. } = optimizer?;
        let optimizer = Optimizer { rule, no_decay, non_finite: non_finite?, ..further };
        is_sound.then_some(optimizer)
    }

    /// Where faults of a pattern of `no_decay` belong: at the pattern, or else at what gives it.
    pub(crate) fn no_decay_tokens(&self, position: usize) -> Option<&dyn ToTokens> {
        let settings = settings(peeled(self.optimizer.as_ref()?))?;
        let given = settings.iter().find_map(|setting| match setting {
            Expr::Assign(it) if source_text(&it.left) == "no_decay" => Some(peeled(&it.right)),
            _ => None,
        })?;
        match given {
            Expr::Array(array) if position < array.elems.len() => Some(&array.elems[position]),
            other => Some(other),
        }
    }
}

fn settings(optimizer: &Expr) -> Option<&Punctuated<Expr, Comma>> {
    match optimizer {
        Expr::Call(call) => Some(&call.args),
        _ => None,
    }
}

/// Gives what stands around the rule its value.
fn set<'a>(
    optimizer: &mut Optimizer,
    setting: &str,
    expression: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<()> {
    let value = evaluator.constant(expression);
    if value.is_poisoned() {
        return None;
    }
    // What is no argument of anything is no number either.
    let argument = value.to_argument().unwrap_or(Argument::All);
    let set = optimizer.set(setting, &argument);
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
        (Place::Argument(index), Some(arguments)) if index < arguments.len() => &arguments[index],
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
    argument: &'a Expr,
    evaluator: &mut Evaluator<'a>,
) -> Option<(String, Argument)> {
    let (name, value) = match argument {
        Expr::Assign(assign) => (&*assign.left, &*assign.right),
        other => {
            let message = Message::new("the settings of an optimizer are written `name = value`");
            evaluator.problems.report(other, &message);
            return None;
        }
    };
    let argument = evaluator.constant(value).to_argument()?;
    Some((source_text(name), argument))
}
