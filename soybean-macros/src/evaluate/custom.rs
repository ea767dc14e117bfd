//! Calls of operators that users define.

use std::rc::Rc;

use quote::ToTokens;
use soybean_compiler::{Argument, CallDiagnostic, CallPart};
use soybean_plan::Mode;
use syn::{ExprCall, ItemFn};

use super::{Evaluator, Exit};
use crate::{
    diagnostic::Diagnostic,
    naming::CallId,
    operator::{Declaration, GRADIENT, RESULT, parameters},
    scope::{Frame, Items, Variable},
    value::Value,
};

impl<'a> Evaluator<'a> {
    /// Calls an operator, and evaluates its gradient function if the model is trained. `id` is the
    /// number of the call.
    pub(super) fn custom(
        &mut self,
        call: &'a ExprCall,
        (function, declaration): (&'a ItemFn, &Declaration),
        (scope, id): (Rc<Items<'a>>, CallId),
        operands: Vec<Value<'a>>,
    ) -> Value<'a> {
        let arguments: Option<Vec<Argument>> = operands.iter().map(Value::to_argument).collect();
        let Some(arguments) = arguments else { return Value::Poison };
        let text = |it: &str| Argument::Text(it.to_owned());
        let names = parameters(function).into_iter().map(Argument::Text).collect();
        let arguments = [
            text(&function.sig.ident.to_string()),
            text(&declaration.notation),
            Argument::List(names),
            text(&declaration.symbol),
            declaration.cuda.as_deref().map_or(Argument::All, text),
            Argument::List(arguments),
        ];
        self.stand_at(call);
        let result = match self.builder.call("custom", &arguments) {
            Ok(result) => result,
            Err(fault) => {
                let at: &dyn ToTokens = match fault.at {
                    CallPart::Argument(position) => &call.args[position],
                    CallPart::Call => call,
                };
                return self.report(at, message(fault));
            }
        };
        self.spend_tensors(call);
        if self.builder.mode() == Mode::Training && !function.block.stmts.is_empty() {
            self.gradients(function, (scope, id), operands, &result);
        }
        Value::from_argument(result)
    }

    /// Evaluates the gradient function of an operator.
    fn gradients(
        &mut self,
        function: &'a ItemFn,
        (scope, id): (Rc<Items<'a>>, CallId),
        operands: Vec<Value<'a>>,
        result: &Argument,
    ) {
        let future = self.builder.call("future_gradient", std::slice::from_ref(result));
        let future = future.expect("an operator has a result");
        let names = parameters(function).into_iter().chain([RESULT, GRADIENT].map(str::to_owned));
        let values = operands
            .into_iter()
            .chain([result, &future].map(|it| Value::from_argument(it.clone())));
        let variable = |(name, value)| Variable { name, value, is_mutable: false };
        let mut frame = Frame::new(scope, id);
        frame.variables = names.zip(values).map(variable).collect();
        self.frames.push(frame);
        let found = match self.block(&function.block) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue | Exit::Spent) => Value::Poison,
        };
        self.frames.pop();
        let gradients = match found {
            Value::Tuple(members) => members,
            other => vec![other],
        };
        if gradients.iter().any(Value::is_poisoned) {
            return;
        }
        let arguments: Option<Vec<Argument>> = gradients.iter().map(Value::to_argument).collect();
        let arguments = [future, Argument::List(arguments.unwrap_or_default())];
        if let Err(fault) = self.builder.call("set_gradients", &arguments) {
            self.report(&function.block.stmts[0], message(fault));
        }
    }
}

fn message(fault: CallDiagnostic) -> Diagnostic {
    let message = Diagnostic::new(fault.message);
    match fault.help {
        Some(help) => message.help(help),
        None => message,
    }
}
