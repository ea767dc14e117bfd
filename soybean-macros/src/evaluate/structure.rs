//! Structs with named fields, which name the options of layers. The macro does not see their
//! definitions: rustc checks names and types of the fields.

use syn::{Expr, ExprStruct, FieldPat, FieldValue, Member, PatStruct};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{Evaluator, Flow},
    value::Value,
};

impl<'a> Evaluator<'a> {
    /// Evaluates `Window { kernel: 3, ..SAME }`. The rest is another struct of the type.
    pub(super) fn structure(&mut self, expression: &'a ExprStruct) -> Flow<'a> {
        let mut fields = Vec::new();
        for FieldValue { member, expr, .. } in &expression.fields {
            let value = self.expression(expr)?;
            fields.push((name(member), value));
        }
        let Some(rest) = &expression.rest else { return Ok(Value::Struct(fields)) };
        if matches!(&**rest, Expr::Call(_)) {
            let message = Diagnostic::new("the rest of a struct is a const or a variable")
                .help("write `..SAME` for a `const SAME` with `#[soybean::constant]`");
            return Ok(self.report(rest, message));
        }
        match self.expression(rest)? {
            Value::Struct(others) => {
                let is_new = |it: &(String, Value<'a>)| fields.iter().all(|own| own.0 != it.0);
                let others: Vec<_> = others.into_iter().filter(is_new).collect();
                fields.extend(others);
                Ok(Value::Struct(fields))
            }
            Value::Poison => Ok(Value::Poison),
            other => Ok(self.report(rest, format!("expected a struct, found {}", other.kind()))),
        }
    }

    /// Returns a named field of a value.
    pub(super) fn field(&mut self, base: &Value<'a>, member: &'a Member) -> Value<'a> {
        let name = name(member);
        match base {
            Value::Struct(fields) => match fields.iter().find(|it| it.0 == name) {
                Some((_, value)) => value.clone(),
                None => self.report(member, format!("this struct has no field `{name}`")),
            },
            Value::Poison => Value::Poison,
            other => {
                let headline = format!("{} has no field `{name}`", other.kind());
                self.report(member, headline)
            }
        }
    }

    /// Binds the variables of `Window { kernel, stride, .. }`.
    pub(super) fn bind_fields(&mut self, pattern: &'a PatStruct, value: &Value<'a>) {
        for FieldPat { member, pat, .. } in &pattern.fields {
            let value = self.field(value, member);
            self.bind(pat, value);
        }
    }
}

fn name(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}
