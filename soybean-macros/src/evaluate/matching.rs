//! `match` on values that are known when the model is built: literals, ranges, consts, tuples and
//! arrays of them, alternatives and guards.

use std::{cmp::Ordering, rc::Rc};

use syn::{Expr, ExprMatch, ExprRange, Pat, PatIdent, RangeLimits};

use super::{Evaluator, Flow};
use crate::{dependency::is_in_capitals, diagnostic::Diagnostic, value::Value};

impl<'a> Evaluator<'a> {
    pub(super) fn matching(&mut self, this: &'a ExprMatch) -> Flow<'a> {
        let value = self.expression(&this.expr)?;
        if matches!(value, Value::Poison) {
            self.forget_variables_in(this);
            return Ok(Value::Poison);
        }
        let n_variables = self.frame().variables.len();
        for arm in &this.arms {
            let found = match self.fits_pattern(&arm.pat, &value) {
                Some(true) => Some(self.expression(&arm.body)),
                Some(false) => None,
                None => Some(Ok(Value::Poison)),
            };
            self.frame().variables.truncate(n_variables);
            if let Some(found) = found {
                return found;
            }
        }
        Ok(self.report(&this.match_token, "no arm of this `match` takes the value"))
    }

    /// Returns whether a value fits a pattern, and binds the pattern's variables if it does; `None`
    /// after an error.
    pub(super) fn fits_pattern(&mut self, pattern: &'a Pat, value: &Value<'a>) -> Option<bool> {
        match (pattern, value) {
            (_, Value::Poison) => None,
            (Pat::Guard(it), _) => {
                Some(self.fits_pattern(&it.pat, value)? && self.holds(&it.guard)?)
            }
            (Pat::Or(it), _) => {
                for case in &it.cases {
                    if self.fits_pattern(case, value)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            (Pat::Paren(it), _) => self.fits_pattern(&it.pat, value),
            (Pat::Reference(it), _) => self.fits_pattern(&it.pat, value),
            (Pat::Ident(it), _) if it.by_ref.is_none() => self.fits_name(it, pattern, value),
            (Pat::Lit(it), _) => {
                let literal = self.literal(it);
                self.is_equal(pattern, value, &literal)
            }
            (Pat::Path(it), _) => {
                let constant = self.path(&it.path);
                self.is_equal(pattern, value, &constant)
            }
            (Pat::Range(it), _) => self.is_within(it, pattern, value),
            (Pat::Struct(it), Value::Struct(_)) => {
                for field in &it.fields {
                    let member = self.field(value, &field.member);
                    if !self.fits_pattern(&field.pat, &member)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            (Pat::Tuple(it), Value::Tuple(members)) if it.elems.len() == members.len() => {
                self.fit_all(it.elems.iter().zip(members))
            }
            (Pat::Slice(it), Value::List(members)) => match it.elems.len() == members.len() {
                true => self.fit_all(it.elems.iter().zip(members)),
                false => Some(false),
            },
            _ => self.bind_all(pattern, value),
        }
    }

    /// Fits a name: that of a const, or of a variable, which may have a pattern of its own.
    fn fits_name(
        &mut self,
        name: &'a PatIdent,
        pattern: &'a Pat,
        value: &Value<'a>,
    ) -> Option<bool> {
        if let Some((_, inner)) = &name.subpat {
            let fits = self.fits_pattern(inner, value)?;
            if fits {
                self.bind_name(name, value.clone());
            }
            return Some(fits);
        }
        let text = name.ident.to_string();
        let items = Rc::clone(&self.frame().items);
        let is_known = || items.find(&text).is_some() || items.link(&text).is_some();
        if !is_in_capitals(&text) || !is_known() {
            return self.bind_all(pattern, value);
        }
        let constant = self.value_named(&text);
        self.is_equal(pattern, value, &constant)
    }

    /// Binds a pattern that fits every value of its type, or reports another one.
    fn bind_all(&mut self, pattern: &'a Pat, value: &Value<'a>) -> Option<bool> {
        self.bind(pattern, value.clone());
        Some(true)
    }

    fn fit_all<'v>(
        &mut self,
        mut members: impl Iterator<Item = (&'a Pat, &'v Value<'a>)>,
    ) -> Option<bool>
    where
        'a: 'v,
    {
        members.try_fold(true, |fits, (pattern, member)| {
            Some(fits && self.fits_pattern(pattern, member)?)
        })
    }

    fn holds(&mut self, condition: &'a Expr) -> Option<bool> {
        match self.value(condition) {
            Value::Boolean(holds) => Some(holds),
            Value::Poison => None,
            other => {
                let headline = format!("a guard is a bool that is known, found {}", other.kind());
                self.report(condition, headline);
                None
            }
        }
    }

    fn is_within(
        &mut self,
        range: &'a ExprRange,
        pattern: &'a Pat,
        value: &Value<'a>,
    ) -> Option<bool> {
        let mut order = |bound: &'a Option<Box<Expr>>| match bound {
            Some(bound) => {
                let bound = self.value(bound);
                self.order(pattern, value, &bound).map(Some)
            }
            None => Some(None),
        };
        let (from, to) = (order(&range.start)?, order(&range.end)?);
        let is_before_end = match range.limits {
            RangeLimits::HalfOpen(_) => to.is_none_or(Ordering::is_lt),
            RangeLimits::Closed(_) => to.is_none_or(Ordering::is_le),
        };
        Some(from.is_none_or(Ordering::is_ge) && is_before_end)
    }

    fn is_equal(&mut self, pattern: &'a Pat, value: &Value<'a>, other: &Value<'a>) -> Option<bool> {
        match (value, other) {
            (Value::Boolean(left), Value::Boolean(right)) => Some(left == right),
            (Value::List(left), Value::List(right)) | (Value::Tuple(left), Value::Tuple(right)) => {
                let mut pairs = left.iter().zip(right);
                let is_equal = pairs.try_fold(true, |is_equal, (left, right)| {
                    Some(is_equal && self.is_equal(pattern, left, right)?)
                });
                Some(is_equal? && left.len() == right.len())
            }
            (Value::Struct(left), Value::Struct(right)) => {
                left.iter().try_fold(true, |is_equal, (name, member)| {
                    let other = right.iter().find(|it| it.0 == *name)?;
                    Some(is_equal && self.is_equal(pattern, member, &other.1)?)
                })
            }
            _ => self.order(pattern, value, other).map(Ordering::is_eq),
        }
    }

    fn order(
        &mut self,
        pattern: &'a Pat,
        value: &Value<'a>,
        other: &Value<'a>,
    ) -> Option<Ordering> {
        match (value, other) {
            (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
            // NaN fits no pattern.
            (Value::Float(left), Value::Float(right)) => {
                Some(left.partial_cmp(right).unwrap_or(Ordering::Greater))
            }
            (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
            (Value::Poison, _) | (_, Value::Poison) => None,
            _ => {
                let headline =
                    format!("this pattern is {}, but the value is {}", other.kind(), value.kind());
                let message = match value {
                    Value::Tensor(_) => Diagnostic::new(headline)
                        .help("`x.where_(condition, y)` chooses between the elements of tensors"),
                    _ => Diagnostic::new(headline),
                };
                self.report(pattern, message);
                None
            }
        }
    }
}
