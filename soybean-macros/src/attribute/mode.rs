//! The argument `mode = "inference"`.

use proc_macro2::TokenStream;
use soybean_compiler::Optimizer;
use soybean_plan::Mode;
use syn::{Expr, ExprLit, Lit};

use super::{Attribute, read_choice};
use crate::{
    evaluate::{Evaluator, expression::peeled},
    problem::{Message, Problems},
};

impl Attribute {
    /// The mode as far as the tokens tell: on it depends what is generated, also where something is wrong.
    pub(crate) fn mode(&self) -> Mode {
        match self.mode.as_ref().map(peeled) {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(it), .. })) => {
                it.value().parse().unwrap_or_default()
            }
            _ => Mode::default(),
        }
    }

    /// How the model is trained, if it is; reports what is wrong with the mode, too.
    pub(super) fn optimizer_of_mode<'a>(
        &'a self,
        evaluator: &mut Evaluator<'a>,
    ) -> Option<Optimizer> {
        let mode = match &self.mode {
            Some(expression) => read_choice("mode", expression, &Mode::NAMES, evaluator)?,
            None => Mode::default(),
        };
        if mode == Mode::Training {
            return self.read_updates(evaluator);
        }
        let of_training = [
            ("optimizer", &self.optimizer),
            ("clip_norm", &self.clip_norm),
            ("accumulate", &self.accumulate),
            ("ema", &self.ema),
            ("non_finite", &self.non_finite),
        ];
        let mut is_sound = true;
        for (name, expression) in of_training {
            let Some(expression) = expression else { continue };
            let message =
                Message::new(format!("a model of `mode = \"inference\"` has no `{name}`"))
                    .help("remove this argument, or the mode");
            evaluator.problems.report(expression, &message);
            is_sound = false;
        }
        is_sound.then(Optimizer::default)
    }
}

/// The mode of an attribute that has not been parsed yet; what is wrong with it is reported when it is.
pub(crate) fn mode_of(attribute: &TokenStream) -> Mode {
    Attribute::parse(attribute.clone(), &mut Problems::default()).mode()
}
