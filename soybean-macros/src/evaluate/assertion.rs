//! Calls of macros that are evaluated with the model: `assert!` and its kin, and `matches!`.
//!
//! An assertion of a layer of another crate is reported at the user's call, in the words of its
//! message.

use syn::{
    BinOp, Expr, ExprLit, Lit, Macro, Pat, Token,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

use super::{Evaluator, Exit, Flow, expression::peeled};
use crate::{
    arithmetic, diagnostic::Diagnostic, source_text::source_text, unsupported, value::Value,
};

/// The macro's arguments.
pub(super) enum Arguments {
    /// The condition of an assertion, or several operands, and then the message.
    Expressions(Vec<Expr>),
    /// `matches!(value, pattern)`.
    Match(Box<(Expr, Pat)>),
}

impl<'a> Evaluator<'a> {
    pub(super) fn macro_call(&mut self, call: &'a Macro) -> Flow<'a> {
        let name = call.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let arguments = match name.as_str() {
            "assert" | "debug_assert" | "assert_eq" | "debug_assert_eq" | "assert_ne"
            | "debug_assert_ne" | "panic" | "unreachable" | "matches" => self.arguments(call),
            _ => None,
        };
        let name = name.trim_start_matches("debug_");
        match (name, arguments) {
            ("matches", Some(Arguments::Match(it))) => {
                let value = self.expression(&it.0)?;
                let n_variables = self.frame().variables.len();
                let fits = self.fits_pattern(&it.1, &value);
                self.frame().variables.truncate(n_variables);
                Ok(fits.map_or(Value::Poison, Value::Boolean))
            }
            ("assert", Some(Arguments::Expressions(list))) if !list.is_empty() => {
                self.assertion(call, list)
            }
            ("assert_eq" | "assert_ne", Some(Arguments::Expressions(list))) if list.len() > 1 => {
                let (left, right) = (self.expression(&list[0])?, self.expression(&list[1])?);
                if left.is_poisoned() || right.is_poisoned() {
                    return Ok(Value::UNIT);
                }
                let op = match name {
                    "assert_eq" => BinOp::Eq(<Token![==]>::default()),
                    _ => BinOp::Ne(<Token![!=]>::default()),
                };
                match arithmetic::binary(&op, &left, &right) {
                    Ok(Value::Boolean(true)) => Ok(Value::UNIT),
                    Ok(_) => {
                        let (left, right) = (self.shown(&left), self.shown(&right));
                        let text = format!("this assertion fails: {left} and {right}");
                        self.fails(call, &list[2..], text)
                    }
                    Err(message) => Ok(self.report(&call.path, message)),
                }
            }
            ("panic" | "unreachable", Some(Arguments::Expressions(list))) => {
                self.fails(call, list, "the model panics here".to_owned())
            }
            _ => {
                self.forget_variables_in(call);
                let message = Diagnostic::new("a macro call is not part of the model language");
                Ok(self.report(&call.path, message.help(unsupported::MACRO)))
            }
        }
    }

    /// Evaluates `assert!` with these arguments.
    fn assertion(&mut self, call: &'a Macro, list: &'a [Expr]) -> Flow<'a> {
        match self.expression(&list[0])? {
            Value::Boolean(true) => Ok(Value::UNIT),
            Value::Boolean(false) => {
                let text = format!("this assertion fails: `{}`", source_text(&list[0]));
                self.fails(call, &list[1..], text)
            }
            Value::Poison => Ok(Value::UNIT),
            other => {
                let kind = other.kind();
                let message = Diagnostic::new(format!("an assertion needs a bool, found {kind}"));
                let message = match other {
                    Value::Tensor(_) => {
                        message.help("elements of tensors are not known when the model is built")
                    }
                    _ => message,
                };
                Ok(self.report(&list[0], message))
            }
        }
    }

    /// Returns the arguments of a call, which are parsed once.
    fn arguments(&mut self, call: &'a Macro) -> Option<&'a Arguments> {
        let key = std::ptr::from_ref(call);
        if let Some(arguments) = self.macros.get(&key) {
            return Some(arguments);
        }
        let is_match = call.path.is_ident("matches");
        let parse = |input: ParseStream<'_>| match is_match {
            true => {
                let value = input.parse()?;
                input.parse::<Token![,]>()?;
                let pattern = Pat::parse_multi_with_leading_vert(input)?;
                input.parse::<Option<Token![,]>>()?;
                Ok(Arguments::Match(Box::new((value, pattern))))
            }
            false => {
                let list = Punctuated::<Expr, Token![,]>::parse_terminated(input)?;
                Ok(Arguments::Expressions(list.into_iter().collect()))
            }
        };
        let arguments = parse.parse2(call.tokens.clone()).ok()?;
        // Values refer to the model's expressions, and the evaluation ends with the process.
        let arguments: &'a Arguments = Box::leak(Box::new(arguments));
        self.macros.insert(key, arguments);
        Some(arguments)
    }

    /// Reports an assertion that fails, and leaves the function, whose rest relies on it.
    fn fails(&mut self, call: &'a Macro, message: &'a [Expr], default: String) -> Flow<'a> {
        let text = match message {
            [] => Some(default),
            [format, arguments @ ..] => self.message(format, arguments),
        };
        if let Some(text) = text {
            self.report(call, text);
        }
        Err(Exit::Return(Value::Poison))
    }

    /// Returns the text of a message with its arguments.
    fn message(&mut self, format: &'a Expr, arguments: &'a [Expr]) -> Option<String> {
        let Expr::Lit(ExprLit { lit: Lit::Str(format), .. }) = peeled(format) else {
            self.report(format, "the message of an assertion is a string");
            return None;
        };
        let format = format.value();
        let (mut text, mut rest, mut n_given) = (String::new(), format.as_str(), 0);
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                text.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}')?;
            let name = name.split(':').next().unwrap_or_default().trim();
            let value = self.argument_named(name, arguments, &mut n_given);
            text.push_str(&self.shown(&value));
            rest = after;
        }
        text.push_str(rest);
        Some(text)
    }

    /// Returns what a name in the braces of a message refers to.
    fn argument_named(
        &mut self,
        name: &str,
        arguments: &'a [Expr],
        n_given: &mut usize,
    ) -> Value<'a> {
        let named = arguments.iter().find_map(|it| match it {
            Expr::Assign(it) if source_text(&it.left) == name => Some(&*it.right),
            _ => None,
        });
        let position = match name.is_empty() {
            true => Some(std::mem::replace(n_given, *n_given + 1)),
            false => name.parse().ok(),
        };
        match named.or_else(|| arguments.get(position?)) {
            Some(argument) => self.value(argument),
            None => self.value_named(name),
        }
    }

    /// Returns the text of a value in a message.
    fn shown(&self, value: &Value<'a>) -> String {
        let all = |members: &[Value<'a>]| {
            members.iter().map(|it| self.shown(it)).collect::<Vec<_>>().join(", ")
        };
        match value {
            Value::Tensor(tensor) => self.builder.shape(*tensor).to_string(),
            Value::Integer(it) => it.to_string(),
            Value::Float(it) => it.to_string(),
            Value::Boolean(it) => it.to_string(),
            Value::Text(it) => it.clone(),
            Value::List(members) | Value::Sequence(members) => format!("[{}]", all(members)),
            Value::Tuple(members) => format!("({})", all(members)),
            Value::Struct(_) | Value::Init(_) | Value::All | Value::Poison => value.kind().into(),
        }
    }
}
