//! Control flow, which is evaluated while the model is built. Loops are unrolled.

use syn::{Expr, ExprForLoop, ExprIf, ExprRange, RangeLimits};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{Evaluator, Exit, Flow, budget::Resource},
    value::Value,
};

/// The largest number of iterations of one loop.
const MAX_ROUNDS: i64 = 10_000;

impl<'a> Evaluator<'a> {
    pub(super) fn branch(&mut self, branch: &'a ExprIf) -> Flow<'a> {
        if let Expr::Let(_) = &*branch.cond {
            self.forget_variables_in(branch);
            return Ok(self.unsupported(crate::unsupported::expression(&branch.cond)));
        }
        match (self.expression(&branch.cond)?, &branch.else_branch) {
            (Value::Boolean(true), _) => self.block(&branch.then_branch),
            (Value::Boolean(false), Some((_, otherwise))) => self.expression(otherwise),
            (Value::Boolean(false), None) => Ok(Value::UNIT),
            (condition, _) => {
                self.forget_variables_in(branch);
                if !condition.is_poisoned() {
                    let headline = format!(
                        "the condition must be a bool that is known when the model is built, found {}",
                        condition.kind()
                    );
                    let message = Diagnostic::new(headline);
                    let message = match condition {
                        Value::Tensor(_) => message.help(
                            "`x.where_(condition, y)` chooses between the elements of tensors",
                        ),
                        _ => message,
                    };
                    self.report(&branch.cond, message);
                }
                Ok(Value::Poison)
            }
        }
    }

    pub(super) fn for_loop(&mut self, this: &'a ExprForLoop) -> Flow<'a> {
        let rounds = match self.expression(&this.expr)? {
            Value::List(members) | Value::Sequence(members) => members,
            other => {
                self.forget_variables_in(this);
                if !other.is_poisoned() {
                    let headline = format!(
                        "a model can loop over ranges and arrays only, found {}",
                        other.kind()
                    );
                    self.report(&this.expr, headline);
                }
                return Ok(Value::UNIT);
            }
        };
        self.frame().rounds.push(0);
        let result = self.rounds(this, rounds);
        self.frame().rounds.pop();
        result.map(|()| Value::UNIT)
    }

    fn rounds(&mut self, this: &'a ExprForLoop, rounds: Vec<Value<'a>>) -> Result<(), Exit<'a>> {
        for (round, value) in rounds.into_iter().enumerate() {
            if !self.spend(Resource::Expressions, 1, &this.for_token) {
                return Err(Exit::Spent);
            }
            let frame = self.frame();
            *frame.rounds.last_mut().expect("pushed by the loop") = round;
            let n_variables = frame.variables.len();
            self.bind(&this.pat, value);
            let result = self.block(&this.body);
            self.frame().variables.truncate(n_variables);
            match result {
                Ok(_) | Err(Exit::Continue) => {}
                Err(Exit::Break) => break,
                Err(exit @ (Exit::Return(_) | Exit::Spent)) => return Err(exit),
            }
        }
        Ok(())
    }

    pub(super) fn range(&mut self, range: &'a ExprRange) -> Flow<'a> {
        let (start, end) = match (&range.start, &range.end) {
            (None, None) => return Ok(Value::All),
            (Some(start), Some(end)) => (start, end),
            (None, Some(_)) | (Some(_), None) => {
                let message = Diagnostic::new("a range needs both bounds").help("write `0..n`");
                return Ok(self.report(range, message));
            }
        };
        let first = self.bound(start)?;
        let last = self.bound(end)?;
        let (Some(first), Some(last)) = (first, last) else { return Ok(Value::Poison) };
        let past = match range.limits {
            RangeLimits::HalfOpen(_) => last,
            RangeLimits::Closed(_) => last.saturating_add(1),
        };
        if past.saturating_sub(first) > MAX_ROUNDS {
            let headline = format!("a loop of a model has at most {MAX_ROUNDS} rounds");
            let message =
                Diagnostic::new(headline).help("loops are unrolled when the model is built");
            return Ok(self.report(range, message));
        }
        let members: Vec<_> = (first..past).map(Value::Integer).collect();
        match self.spend(Resource::Elements, members.len(), range) {
            true => Ok(Value::Sequence(members)),
            false => Err(Exit::Spent),
        }
    }

    fn bound(&mut self, expression: &'a Expr) -> Result<Option<i64>, Exit<'a>> {
        match self.expression(expression)? {
            Value::Integer(bound) => return Ok(Some(bound)),
            Value::Poison => {}
            other => {
                let headline = format!(
                    "the bound of a loop must be an integer that is known when the model is built, found {}",
                    other.kind()
                );
                self.report(expression, headline);
            }
        }
        Ok(None)
    }
}
