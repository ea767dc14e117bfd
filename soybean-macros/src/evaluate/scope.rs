//! `scope(name, || ..)`: gives a call a name, and lets calls share parameters.

use std::mem;

use soybean_plan::Init;
use syn::{Expr, ExprCall, ExprClosure};

use super::{Evaluator, Exit, Flow, expression::peeled};
use crate::{diagnostic::Diagnostic, source_text::source_text, value::Value};

/// The name of the function.
pub(crate) const SCOPE: &str = "scope";

/// A call of it, for help.
const EXAMPLE: &str = "scope(\"tower\", || tower(x))";

impl<'a> Evaluator<'a> {
    /// Evaluates the closure in the scope of this name.
    pub(super) fn scope(&mut self, call: &'a ExprCall) -> Flow<'a> {
        let (Some(name), Some(body), 2) = (call.args.first(), call.args.last(), call.args.len())
        else {
            let n_found = call.args.len();
            let headline = format!("`{SCOPE}` takes 2 arguments, found {n_found}");
            let message = Diagnostic::new(headline).help(format!("write `{EXAMPLE}`"));
            return Ok(self.report(call, message));
        };
        let own_name = self.own_name(("scope", EXAMPLE), name)?;
        let Some(closure) = self.plain_closure(body) else { return Ok(Value::Poison) };
        let Some(own_name) = own_name else { return Ok(Value::Poison) };
        let caller = self.frame().call;
        let id = self.naming.enter_scope(caller, &own_name);
        let frame = self.frame();
        frame.call = id;
        let rounds = mem::take(&mut frame.rounds);
        let result = self.expression(&closure.body);
        let frame = self.frame();
        (frame.call, frame.rounds) = (caller, rounds);
        match result {
            Ok(value) | Err(Exit::Return(value)) => Ok(value),
            Err(Exit::Spent) => Err(Exit::Spent),
            // rustc reports loops that end in a closure.
            Err(Exit::Break | Exit::Continue) => Ok(Value::Poison),
        }
    }

    /// Returns the closure without arguments that an expression is, or reports another one.
    fn plain_closure(&mut self, body: &'a Expr) -> Option<&'a ExprClosure> {
        let found = peeled(body);
        let (headline, help) = match found {
            Expr::Closure(it) if it.capture.is_some() => (
                "the closure of a scope uses the variables around it".to_owned(),
                "leave out `move`".to_owned(),
            ),
            Expr::Closure(it) if it.inputs.is_empty() => return Some(it),
            Expr::Closure(it) => {
                let n_inputs = it.inputs.len();
                let headline =
                    format!("the closure of a scope takes no arguments, found {n_inputs}");
                (headline, format!("write `{EXAMPLE}`"))
            }
            Expr::Path(_) => {
                let text = source_text(found);
                (
                    format!("`{SCOPE}` takes a closure, found `{text}`"),
                    format!("write `|| {text}(x)`"),
                )
            }
            other => {
                let text = source_text(other);
                (format!("`{SCOPE}` takes a closure, found `{text}`"), format!("write `|| {text}`"))
            }
        };
        self.report(found, Diagnostic::new(headline).help(help));
        None
    }

    /// Asks once more for a parameter of the scope, and reports how it differs from what the call
    /// asks for.
    pub(super) fn share(
        &mut self,
        value: soybean_compiler::Value,
        (kind, call): (&str, &'a ExprCall),
        (shape, init): (&[usize], Option<Init>),
    ) -> Value<'a> {
        let shared = match (kind, init) {
            ("param", Some(init)) => self.builder.share_parameter(value, shape, init),
            ("buffer", Some(init)) => self.builder.share_buffer(value, shape, init),
            _ => self.builder.share_state(value, shape),
        };
        match shared {
            Ok(()) => Value::Tensor(value),
            Err(message) => {
                let help = "a scope that begins again has the same parameters; others need a scope of another name";
                self.report(call, Diagnostic::new(message).help(help))
            }
        }
    }
}
