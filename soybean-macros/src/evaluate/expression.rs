//! Expressions: literals, names, arrays, tuples and indices. Other files evaluate the other kinds.

use std::rc::Rc;

use syn::{
    Expr, ExprBinary, ExprCast, ExprField, ExprIndex, ExprLit, ExprRepeat, ItemConst, ItemStatic,
    Lit, Member, Path, punctuated::Punctuated,
};

use crate::{
    arithmetic,
    diagnostic::Diagnostic,
    evaluate::{
        Evaluator, Exit, Flow, Linked,
        budget::{Resource, n_elements},
    },
    scope::{Definition, Items},
    source_text::{source_text, whole_text},
    unsupported,
    value::Value,
};

/// The largest depth to which expressions nest, within calls too. The stack bounds it.
const MAX_DEPTH: usize = 400;

/// The largest length of an array that repeats a value.
const MAX_LENGTH: i64 = 10_000;

/// Constants of the standard library, by the end of their paths.
const STANDARD: [(&str, f64); 9] = [
    ("consts::PI", std::f64::consts::PI),
    ("consts::TAU", std::f64::consts::TAU),
    ("consts::E", std::f64::consts::E),
    ("consts::LN_2", std::f64::consts::LN_2),
    ("consts::SQRT_2", std::f64::consts::SQRT_2),
    ("consts::FRAC_1_SQRT_2", std::f64::consts::FRAC_1_SQRT_2),
    ("consts::FRAC_2_SQRT_PI", std::f64::consts::FRAC_2_SQRT_PI),
    ("f64::INFINITY", f64::INFINITY),
    ("f64::NEG_INFINITY", f64::NEG_INFINITY),
];

impl<'a> Evaluator<'a> {
    pub(super) fn expression(&mut self, expression: &'a Expr) -> Flow<'a> {
        if !self.spend(Resource::Expressions, 1, expression) {
            return Err(Exit::Spent);
        }
        self.depth += 1;
        let flow = match self.depth <= MAX_DEPTH {
            true => self.expression_by_kind(expression),
            false => {
                let headline =
                    format!("expressions and calls nest at most {MAX_DEPTH} deep in a model");
                let message = Diagnostic::new(headline).help("give parts of it names with `let`");
                Ok(self.report(expression, message))
            }
        };
        self.depth -= 1;
        flow
    }

    fn expression_by_kind(&mut self, expression: &'a Expr) -> Flow<'a> {
        match expression {
            Expr::Lit(it) => Ok(self.literal(it)),
            Expr::Path(it) => Ok(self.path(&it.path)),
            Expr::Paren(it) => self.expression(&it.expr),
            Expr::Group(it) => self.expression(&it.expr),
            Expr::Reference(it) if it.mutability.is_none() => self.expression(&it.expr),
            Expr::Block(it) if it.label.is_none() => self.block(&it.block),
            Expr::Array(it) => self.all(&it.elems).map(Value::List),
            Expr::Tuple(it) => self.all(&it.elems).map(Value::Tuple),
            Expr::Repeat(it) => self.repeat(it),
            Expr::Index(it) => self.index(it),
            Expr::Field(ExprField { base, member: Member::Unnamed(index), .. }) => {
                let base_value = self.expression(base)?;
                Ok(self.member(&base_value, i64::from(index.index), expression))
            }
            Expr::Field(ExprField { base, member, .. }) => {
                let base_value = self.expression(base)?;
                Ok(self.field(&base_value, member))
            }
            Expr::Struct(it) => self.structure(it),
            Expr::Range(it) => self.range(it),
            Expr::Unary(it) => self.unary(it),
            Expr::Binary(it) => self.binary(it),
            Expr::Cast(it) => self.cast(it),
            Expr::Assign(it) => self.assign(it),
            Expr::If(it) => self.branch(it),
            Expr::ForLoop(it) if it.label.is_none() => self.for_loop(it),
            Expr::Call(it) => self.call(it),
            Expr::MethodCall(it) => self.method_call(it),
            Expr::Match(it) => self.matching(it),
            Expr::Macro(it) => self.macro_call(&it.mac),
            other => self.rest(other),
        }
    }

    /// Evaluates expressions that leave a loop or function, and reports those that are not part of
    /// the language.
    fn rest(&mut self, expression: &'a Expr) -> Flow<'a> {
        match expression {
            Expr::Return(it) => match &it.expr {
                Some(value) => self.expression(value).and_then(|value| Err(Exit::Return(value))),
                None => Err(Exit::Return(Value::UNIT)),
            },
            Expr::Break(it) if it.label.is_none() && it.expr.is_none() => Err(Exit::Break),
            Expr::Continue(it) if it.label.is_none() => Err(Exit::Continue),
            other => {
                self.forget_variables_in(other);
                Ok(self.unsupported(unsupported::expression(other)))
            }
        }
    }

    /// Evaluates several expressions.
    pub(super) fn all<P>(
        &mut self,
        expressions: &'a Punctuated<Expr, P>,
    ) -> Result<Vec<Value<'a>>, Exit<'a>> {
        expressions.iter().map(|it| self.expression(it)).collect()
    }

    pub(super) fn literal(&mut self, literal: &'a ExprLit) -> Value<'a> {
        let number = match &literal.lit {
            Lit::Bool(it) => return Value::Boolean(it.value),
            Lit::Str(it) => return Value::Text(it.value()),
            Lit::Char(it) => return Value::Text(it.value().to_string()),
            Lit::Byte(it) => return Value::Integer(it.value().into()),
            Lit::Int(it) if matches!(it.suffix(), "f32" | "f64") => {
                it.base10_digits().parse().map(Value::Float).ok()
            }
            Lit::Int(it) => it.base10_parse().map(Value::Integer).ok(),
            Lit::Float(it) => it.base10_parse().map(Value::Float).ok(),
            _ => None,
        };
        number.unwrap_or_else(|| {
            self.report(
                literal,
                "a model's literals are numbers of up to 64 bits, bools and strings",
            )
        })
    }

    /// Returns the value of a variable or const of this name.
    pub(super) fn value_named(&mut self, name: &str) -> Value<'a> {
        if let Some(variable) = self.frame().variable(name) {
            return variable.value.clone();
        }
        let items = Rc::clone(&self.frame().items);
        match items.find(name) {
            Some((Definition::Constant(item), scope)) => self.item_constant(item, scope),
            _ => match self.linked(&items, name) {
                Some(Linked::To(Definition::Constant(item), scope)) => {
                    self.item_constant(item, scope)
                }
                _ => Value::Poison,
            },
        }
    }

    /// Evaluates a path: a variable, a const, or a constant of the standard library.
    pub(super) fn path(&mut self, path: &'a Path) -> Value<'a> {
        let text = path.get_ident().map_or_else(|| whole_text(path), ToString::to_string);
        let name = text.strip_prefix("self::").unwrap_or(&text);
        if let Some(variable) = self.frame().variable(&text) {
            let value = variable.value.clone();
            self.spend(Resource::Elements, n_elements(&value), path);
            return value;
        }
        let items = Rc::clone(&self.frame().items);
        match items.find(name) {
            Some((Definition::Constant(item), scope)) => self.item_constant(item, scope),
            Some((Definition::Function(_), _)) => {
                self.report(path, format!("`{name}` is a function; a model can only call it"))
            }
            Some((Definition::Static(item), _)) => self.item_static(item),
            None => match STANDARD.iter().find(|(end, _)| text.ends_with(end)) {
                Some((_, value)) => Value::Float(*value),
                None => self.linked_constant(path, &text, &items),
            },
        }
    }

    fn linked_constant(&mut self, path: &'a Path, text: &str, items: &Items<'a>) -> Value<'a> {
        match self.linked(items, text) {
            Some(Linked::To(Definition::Constant(item), scope)) => self.item_constant(item, scope),
            Some(Linked::To(Definition::Function(_), _)) => {
                self.report(path, format!("`{text}` is a function; a model can only call it"))
            }
            Some(Linked::To(Definition::Static(item), _)) => self.item_static(item),
            Some(Linked::Unmarked) => {
                let headline = format!("`{text}` is not known when the model is built");
                let help =
                    "write `#[soybean::constant]` on it, or move it into the annotated `mod`";
                self.report_unmarked(path, text, Diagnostic::new(headline).help(help))
            }
            Some(Linked::Faulty) => Value::Poison,
            None => self.unknown_variable(path, text),
        }
    }

    fn item_static(&mut self, item: &'a ItemStatic) -> Value<'a> {
        let headline = format!("`{}` is a `static`, whose value a model cannot read", item.ident);
        self.report(&item.static_token, Diagnostic::new(headline).help("use `const`"))
    }

    fn item_constant(&mut self, item: &'a ItemConst, scope: Rc<Items<'a>>) -> Value<'a> {
        let key = std::ptr::from_ref(item);
        match self.constants.get(&key) {
            Some(Some(value)) => {
                let value = value.clone();
                self.spend(Resource::Elements, n_elements(&value), &item.ident);
                return value;
            }
            Some(None) => {
                let message = "the value of this const depends on itself";
                return self.report_unless_read(&item.ident, message.into());
            }
            None => {}
        }
        self.constants.insert(key, None);
        let n_outer = usize::from(scope.is_root());
        self.n_consts += n_outer;
        let mut value = self.in_items(scope, |this| this.value(&item.expr));
        if !value.is_poisoned() && !self.is_of_type(&value, &item.ty) {
            let (name, ty) = (&item.ident, source_text(&item.ty));
            let headline = format!("the const `{name}` is of type `{ty}`, found {}", value.kind());
            value = self.report_unless_read(&item.expr, headline.into());
        }
        self.n_consts -= n_outer;
        self.constants.insert(key, Some(value.clone()));
        value
    }

    fn repeat(&mut self, repeat: &'a ExprRepeat) -> Flow<'a> {
        let value = self.expression(&repeat.expr)?;
        match self.expression(&repeat.len)? {
            Value::Integer(length @ 0..=MAX_LENGTH) => {
                let n_copied = usize::try_from(length).unwrap_or(0) * (1 + n_elements(&value));
                match self.spend(Resource::Elements, n_copied, repeat) {
                    true => Ok(Value::List((0..length).map(|_| value.clone()).collect())),
                    false => Err(Exit::Spent),
                }
            }
            Value::Poison => Ok(Value::Poison),
            _ => {
                let headline = format!("the length of an array is an integer up to {MAX_LENGTH}");
                Ok(self.report(&repeat.len, headline))
            }
        }
    }

    fn index(&mut self, index: &'a ExprIndex) -> Flow<'a> {
        let base = self.expression(&index.expr)?;
        let position = self.expression(&index.index)?;
        match (&base, position) {
            (_, Value::Integer(position)) => Ok(self.member(&base, position, &index.index)),
            (Value::Poison, _) | (_, Value::Poison) => Ok(Value::Poison),
            (_, other) => {
                let headline = format!(
                    "an index is an integer that is known when the model is built, found {}",
                    other.kind()
                );
                Ok(self.report(&index.index, headline))
            }
        }
    }

    fn member(&mut self, base: &Value<'a>, position: i64, at: &'a Expr) -> Value<'a> {
        match base {
            Value::List(members) | Value::Tuple(members) => {
                let member = usize::try_from(position).ok().and_then(|it| members.get(it));
                member.cloned().unwrap_or_else(|| {
                    let n_members = members.len();
                    self.report(
                        at,
                        format!("there is no member {position} in {} of {n_members}", base.kind()),
                    )
                })
            }
            Value::Poison => Value::Poison,
            _ => self.report(at, format!("{} has no members to index", base.kind())),
        }
    }

    fn cast(&mut self, cast: &'a ExprCast) -> Flow<'a> {
        let operand = self.expression(&cast.expr)?;
        if operand.is_poisoned() {
            return Ok(Value::Poison);
        }
        let result = arithmetic::cast(&operand, &whole_text(&cast.ty));
        Ok(result.unwrap_or_else(|diagnostic| self.report(cast, diagnostic)))
    }

    /// Evaluates `a && b` and `a || b`, whose right side may be skipped.
    pub(super) fn short_circuit(&mut self, binary: &'a ExprBinary, stops_at: bool) -> Flow<'a> {
        match self.expression(&binary.left)? {
            Value::Boolean(left) if left == stops_at => Ok(Value::Boolean(left)),
            Value::Boolean(_) => self.expression(&binary.right),
            Value::Poison => Ok(Value::Poison),
            other => {
                let message = Diagnostic::new(format!("expected a bool, found {}", other.kind()));
                let message = match other {
                    Value::Tensor(_) => message.help(if stops_at {
                        "the conditions of elements are joined by `|`: `x.gt(0.0) | mask`"
                    } else {
                        "the conditions of elements are joined by `&`: `x.gt(0.0) & mask`"
                    }),
                    _ => message,
                };
                Ok(self.report(&binary.left, message))
            }
        }
    }
}

/// Returns the expression without parentheses and without the groups that `macro_rules!` inserts.
pub(crate) fn peeled(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(it) => peeled(&it.expr),
        Expr::Group(it) => peeled(&it.expr),
        other => other,
    }
}
