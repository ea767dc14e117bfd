//! Parameters, `param(name, shape, init)`, and initializers.

use std::rc::Rc;

use soybean_compiler::{CallPart, init_names};
use soybean_plan::{Init, MAX_RANK, Mode};
use syn::{Expr, ExprCall};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{Evaluator, Exit, Flow},
    source_text::whole_text,
    suggestion,
    value::{InitCall, Value},
};

/// The functions that make tensors that are kept from step to step.
pub(crate) const PARAMETERS: [&str; 3] = ["param", "buffer", "state"];

impl<'a> Evaluator<'a> {
    /// Evaluates an initializer: `he_normal()`, `normal(0.02)`, ..
    pub(super) fn init(&mut self, name: &str, call: &'a ExprCall) -> Flow<'a> {
        let values = self.all(&call.args)?;
        let arguments: Option<Vec<_>> = call
            .args
            .iter()
            .zip(&values)
            .map(|(expression, value)| self.argument(expression, value))
            .collect();
        Ok(match arguments {
            Some(arguments) => {
                Value::Init(Rc::new(InitCall { name: name.to_owned(), arguments, call }))
            }
            None => Value::Poison,
        })
    }

    /// Evaluates `param(name, shape, init)`, `buffer` with the same arguments, or `state(name,
    /// shape)`.
    pub(super) fn parameter(&mut self, kind: &str, call: &'a ExprCall) -> Flow<'a> {
        let (n_expected, example) = match kind {
            "state" => (2, "state(\"name\", [rows, columns])".to_owned()),
            _ => (3, format!("{kind}(\"name\", [rows, columns], zeros())")),
        };
        if call.args.len() != n_expected {
            let n_found = call.args.len();
            let headline = format!("`{kind}` takes {n_expected} arguments, found {n_found}");
            let message = Diagnostic::new(headline).help(format!("write `{example}`"));
            self.all(&call.args)?;
            return Ok(self.report(call, message));
        }
        if kind == "state" && self.builder.mode() == Mode::Training {
            let message = Diagnostic::new("only models of mode inference have states")
                .help("a `buffer` is kept from one training step to the next");
            return Ok(self.report(call, message));
        }
        let (name, shape) = (&call.args[0], &call.args[1]);
        let own_name = self.own_name(("parameter", "param(\"w\", ..)"), name)?;
        let shape = self.parameter_shape(shape)?;
        let init = match call.args.get(2) {
            Some(init) => self.parameter_init(init, shape.as_deref())?,
            None => None,
        };
        self.stand_at(call);
        let frame = self.frame();
        let (id, rounds) = (frame.call, frame.rounds.clone());
        let shared = own_name.as_ref().and_then(|it| self.naming.shared(id, it, &rounds));
        if let Some(shared) = shared.map(|it| it.value) {
            return Ok(match (shared, shape) {
                (Some(shared), Some(shape)) if init.is_some() || kind == "state" => {
                    self.share(shared, (kind, call), (&shape, init))
                }
                _ => Value::Poison,
            });
        }
        let value = match (&own_name, shape, init) {
            (Some(own_name), Some(shape), None) if kind == "state" => {
                Some(self.builder.state(own_name, &shape))
            }
            (Some(own_name), Some(shape), Some(init)) => Some(match kind {
                "buffer" => self.builder.buffer(own_name, &shape, init),
                _ => self.builder.parameter(own_name, &shape, init),
            }),
            _ => None,
        };
        if let Some(own_name) = own_name {
            self.naming.add_parameter(id, (&own_name, name), &rounds, call, value);
        }
        Ok(value.map_or(Value::Poison, Value::Tensor))
    }

    /// Evaluates the name of a parameter or scope, whose kind and example messages show.
    pub(super) fn own_name(
        &mut self,
        (kind, example): (&str, &str),
        expression: &'a Expr,
    ) -> Result<Option<String>, Exit<'a>> {
        match self.expression(expression)? {
            Value::Text(name) if !name.is_empty() => return Ok(Some(name)),
            Value::Poison => {}
            other => {
                let found = match other {
                    Value::Text(_) => "an empty one",
                    _ => other.kind(),
                };
                let headline = format!("the name of a {kind} must be a string, found {found}");
                let message = Diagnostic::new(headline).help(format!("write `{example}`"));
                self.report(expression, message);
            }
        }
        Ok(None)
    }

    fn parameter_shape(&mut self, expression: &'a Expr) -> Result<Option<Vec<usize>>, Exit<'a>> {
        let dims = match self.expression(expression)? {
            Value::List(dims) if dims.len() <= MAX_RANK => dims,
            Value::List(dims) => {
                let n_dims = dims.len();
                let headline = format!("a tensor has at most {MAX_RANK} dims, found {n_dims}");
                self.report(expression, headline);
                return Ok(None);
            }
            Value::Poison => return Ok(None),
            other => {
                let headline = format!(
                    "the shape of a parameter must be an array of integers that are known when the model is built, found {}",
                    other.kind()
                );
                self.report(expression, Diagnostic::new(headline).help("write `[rows, columns]`"));
                return Ok(None);
            }
        };
        let mut shape = Vec::new();
        for (index, dim) in dims.iter().enumerate() {
            // The dim's own tokens, if the shape is an array expression.
            let at = match expression {
                Expr::Array(array) => &array.elems[index],
                other => other,
            };
            shape.push(self.dim(at, dim));
        }
        let shape = shape.into_iter().collect::<Option<Vec<usize>>>();
        Ok(shape.filter(|it| self.is_possible(expression, it)))
    }

    fn parameter_init(
        &mut self,
        expression: &'a Expr,
        shape: Option<&[usize]>,
    ) -> Result<Option<Init>, Exit<'a>> {
        if let Some(unknown) = self.unknown_init(expression) {
            let headline = format!("unknown init `{unknown}`");
            let help = suggestion::help(&unknown, "inits", &init_names());
            self.report(expression, Diagnostic::new(headline).help(help));
            return Ok(None);
        }
        let call = match self.expression(expression)? {
            Value::Init(call) => call,
            Value::Poison => return Ok(None),
            other => {
                let headline = format!(
                    "the third argument of `param` says how it is filled, found {}",
                    other.kind()
                );
                let message = Diagnostic::new(headline)
                    .help(format!("the inits are {}", init_names().join(", ")));
                self.report(expression, message);
                return Ok(None);
            }
        };
        let Some(shape) = shape else { return Ok(None) };
        match self.builder.init(&call.name, &call.arguments, shape) {
            Ok(init) => Ok(Some(init)),
            Err(diagnostic) => {
                let mut message = Diagnostic::new(diagnostic.message);
                if let Some(help) = diagnostic.help {
                    message = message.help(help);
                }
                match diagnostic.at {
                    CallPart::Argument(index) => self.report(&call.call.args[index], message),
                    CallPart::Call => self.report(call.call, message),
                };
                Ok(None)
            }
        }
    }

    /// Returns the name of an unknown function in place of an initializer.
    fn unknown_init(&mut self, expression: &Expr) -> Option<String> {
        let Expr::Call(call) = expression else { return None };
        let Expr::Path(path) = &*call.func else { return None };
        let name = whole_text(path.path.get_ident()?);
        let is_known = init_names().contains(&name.as_str())
            || PARAMETERS.contains(&name.as_str())
            || self.frame().items.find(&name).is_some()
            || self.frame().items.link(&name).is_some();
        (!is_known).then_some(name)
    }
}
