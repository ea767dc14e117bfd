//! Closures, which are arguments of `flex_attention` alone: functions of a score and its positions.

use soybean_compiler::{Argument, SCORE_INPUTS};
use syn::{Expr, ExprClosure, ExprMethodCall};

use super::{Evaluator, Exit, expression::peeled};
use crate::{diagnostic::Diagnostic, source_text::source_text, value::Value};

/// The operator that takes a closure, as its last argument.
const OPERATOR: &str = "flex_attention";

/// The arguments of the closure.
const INPUTS: &str = "|score, head, query, key|";

impl<'a> Evaluator<'a> {
    /// Evaluates the arguments of a method.
    pub(super) fn method_arguments(
        &mut self,
        call: &'a ExprMethodCall,
    ) -> Result<Vec<Value<'a>>, Exit<'a>> {
        let Some(score) = call.args.last().filter(|_| call.method == OPERATOR) else {
            return self.all(&call.args);
        };
        let others = call.args.iter().take(call.args.len() - 1);
        let mut values: Vec<_> = others.map(|it| self.expression(it)).collect::<Result<_, _>>()?;
        values.push(match peeled(score) {
            Expr::Closure(closure) => self.score_function(closure),
            other => self.no_closure(other),
        });
        Ok(values)
    }

    fn no_closure(&mut self, found: &'a Expr) -> Value<'a> {
        let text = source_text(found);
        let body = match found {
            Expr::Path(_) => format!("{text}(score, head, query, key)"),
            _ => "score".to_owned(),
        };
        let headline = format!("`{OPERATOR}`: `score` must be a closure, found `{text}`");
        self.report(found, Diagnostic::new(headline).help(format!("write `{INPUTS} {body}`")))
    }

    /// Evaluates a closure once, on scalars that stand for its arguments. It reads the variables
    /// around it and cannot change them.
    fn score_function(&mut self, closure: &'a ExprClosure) -> Value<'a> {
        self.stand_at(closure);
        let inputs = self.builder.call(SCORE_INPUTS, &[]);
        let Ok(Argument::List(inputs)) = inputs else { unreachable!("the call has no faults") };
        let (n_expected, n_found) = (inputs.len(), closure.inputs.len());
        if n_expected != n_found {
            let headline =
                format!("a function of scores takes {n_expected} arguments, found {n_found}");
            let message = Diagnostic::new(headline).help(format!("write `{INPUTS} score`"));
            return self.report(closure, message);
        }
        let frame = self.frame().clone();
        self.frames.push(frame);
        for (pattern, input) in closure.inputs.iter().zip(inputs) {
            self.bind(pattern, Value::from_argument(input));
        }
        let result = match self.expression(&closure.body) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue | Exit::Spent) => Value::Poison,
        };
        self.frames.pop();
        result
    }
}
