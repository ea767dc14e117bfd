//! Operators and methods. Those of constants are computed here, and those of tensors call the
//! compiler.

use quote::ToTokens;
use soybean_compiler::{Argument, CallPart, function_names, method_names, operator_descriptions};
use soybean_plan::DType;
use syn::{BinOp, Expr, ExprBinary, ExprMethodCall, ExprUnary, UnOp};

use crate::{
    arithmetic,
    diagnostic::Diagnostic,
    evaluate::{
        Evaluator, Flow,
        budget::{Resource, n_elements},
    },
    source_text::source_text,
    suggestion,
    value::Value,
};

/// Methods of eager tensors that are no operators: rustc accepts them in a layer.
const EAGER: [&str; 5] = ["clone", "item", "probe", "to_array", "to_vec"];

/// An operand of an operator: the user's tokens and the value.
type Operand<'a> = (&'a Expr, Value<'a>);

impl<'a> Evaluator<'a> {
    pub(super) fn unary(&mut self, unary: &'a ExprUnary) -> Flow<'a> {
        let operand = self.expression(&unary.expr)?;
        Ok(match (&unary.op, &operand) {
            (_, Value::Poison) => Value::Poison,
            (UnOp::Neg(_), Value::Tensor(_)) => {
                self.operator("neg", &unary.op, &[(&unary.expr, operand)])
            }
            (UnOp::Not(_), Value::Tensor(_)) => {
                self.operator("logical_not", &unary.op, &[(&unary.expr, operand)])
            }
            (op, _) => arithmetic::unary(op, &operand)
                .unwrap_or_else(|diagnostic| self.report(unary, diagnostic)),
        })
    }

    pub(super) fn binary(&mut self, binary: &'a ExprBinary) -> Flow<'a> {
        match binary.op {
            BinOp::And(_) => return self.short_circuit(binary, false),
            BinOp::Or(_) => return self.short_circuit(binary, true),
            _ => {}
        }
        if is_assignment(&binary.op) {
            let right = self.expression(&binary.right)?;
            let left = self.expression(&binary.left)?;
            let result = self.combine(binary, left, right);
            self.store(&binary.left, result);
            return Ok(Value::UNIT);
        }
        // `a + b + c` nests to the left, as deeply as it has terms.
        let mut terms = vec![binary];
        let mut first = &*binary.left;
        while let Expr::Binary(inner) = first
            && !matches!(inner.op, BinOp::And(_) | BinOp::Or(_))
            && !is_assignment(&inner.op)
        {
            terms.push(inner);
            first = &inner.left;
        }
        let mut left = self.expression(first)?;
        for term in terms.into_iter().rev() {
            let right = self.expression(&term.right)?;
            left = self.combine(term, left, right);
        }
        Ok(left)
    }

    /// Evaluates `left op right`, also for `op=`.
    fn combine(&mut self, binary: &'a ExprBinary, left: Value<'a>, right: Value<'a>) -> Value<'a> {
        if left.is_poisoned() || right.is_poisoned() {
            return Value::Poison;
        }
        if !matches!((&left, &right), (Value::Tensor(_), _) | (_, Value::Tensor(_))) {
            let result = arithmetic::binary(&binary.op, &left, &right);
            return result.unwrap_or_else(|diagnostic| {
                let mut message = Diagnostic::new(diagnostic);
                if left.kind() != right.kind() {
                    message = message
                        .note("left", described(self, &binary.left, &left))
                        .note("right", described(self, &binary.right, &right))
                        .help("numbers are converted with `as`");
                }
                self.report(binary, message)
            });
        }
        let name = match binary.op {
            BinOp::Add(_) | BinOp::AddAssign(_) => "add",
            BinOp::Sub(_) | BinOp::SubAssign(_) => "sub",
            BinOp::Mul(_) | BinOp::MulAssign(_) => "mul",
            BinOp::Div(_) | BinOp::DivAssign(_) => "div",
            BinOp::BitAnd(_) | BinOp::BitAndAssign(_) => "logical_and",
            BinOp::BitOr(_) | BinOp::BitOrAssign(_) => "logical_or",
            BinOp::BitXor(_) | BinOp::BitXorAssign(_) => "logical_xor",
            _ => {
                let headline =
                    format!("`{}` is not defined for tensors", binary.op.to_token_stream());
                let help = comparison(binary, &left).map_or_else(
                    || match binary.op {
                        BinOp::Rem(_) | BinOp::RemAssign(_) => "write `x.remainder(y)`, whose sign is that of `y`",
                        _ => "the operators of tensors are +, -, * and /, and &, |, ^ and ! for conditions",
                    }.to_owned(),
                    |comparison| format!("write `{comparison}`, which is 1 where it holds, else 0; an `if` needs constants"),
                );
                return self.report(&binary.op, Diagnostic::new(headline).help(help));
            }
        };
        self.operator(name, &binary.op, &[(&binary.left, left), (&binary.right, right)])
    }

    pub(super) fn method_call(&mut self, call: &'a ExprMethodCall) -> Flow<'a> {
        let method = call.method.to_string();
        if let Some(poison) = self.python_module(&call.receiver, &method) {
            return Ok(poison);
        }
        let receiver = self.expression(&call.receiver)?;
        if let Some(poison) = self.refuse_names(&call.args, &method) {
            return Ok(poison);
        }
        let arguments = self.method_arguments(call)?;
        if let Some(turbofish) = &call.turbofish {
            return Ok(self.report(turbofish, "the methods of a model take no type arguments"));
        }
        let name = method;
        let is_operator = method_names().contains(&name.as_str());
        match &receiver {
            Value::Poison if is_operator || arithmetic::METHODS.contains(&name.as_str()) => {
                Ok(Value::Poison)
            }
            Value::Tensor(_) | Value::Poison if !is_operator => {
                let headline = format!("unknown operator `{name}`");
                let help = match function_call(&name) {
                    Some(call) => format!("it is a function: `{call}`"),
                    None => suggestion::help_with_operator(&name),
                };
                let message = Diagnostic::new(headline).help(help);
                Ok(match EAGER.contains(&name.as_str()) {
                    true => self.report(&call.method, message),
                    false => self.report_unless_read(&call.method, message),
                })
            }
            Value::Tensor(_) => {
                let operands: Vec<Operand<'a>> = std::iter::once((&*call.receiver, receiver))
                    .chain(call.args.iter().zip(arguments))
                    .collect();
                Ok(self.operator(&name, &call.method, &operands))
            }
            _ => Ok(self.constant_method(call, &receiver, &arguments)),
        }
    }

    /// Reports a call such as `torch.cat(..)` or `F.relu(..)`.
    fn python_module(&mut self, receiver: &'a Expr, method: &str) -> Option<Value<'a>> {
        let Expr::Path(path) = receiver else { return None };
        let module = path.path.get_ident()?.to_string();
        let is_module = ["torch", "F", "nn", "np", "tf"].contains(&module.as_str());
        if !is_module || self.frame().variable(&module).is_some() {
            return None;
        }
        let headline = format!("`{module}.{method}` is Python");
        let help = suggestion::help_with_function(method)
            .unwrap_or_else(|| "functions of a module are written `nn::linear(x, 10)`".to_owned());
        Some(self.report(receiver, Diagnostic::new(headline).help(help)))
    }

    /// Evaluates a method of a number, an array or a range.
    fn constant_method(
        &mut self,
        call: &'a ExprMethodCall,
        receiver: &Value<'a>,
        arguments: &[Value<'a>],
    ) -> Value<'a> {
        if arguments.iter().any(Value::is_poisoned) {
            return Value::Poison;
        }
        let name = call.method.to_string();
        match arithmetic::method(&name, receiver, arguments) {
            Some(Ok(value)) => {
                self.spend(Resource::Elements, n_elements(&value), &call.method);
                value
            }
            Some(Err(diagnostic)) => self.report(call, diagnostic),
            None => {
                let kinds: Vec<_> = arguments.iter().map(Value::kind).collect();
                let given = if kinds.is_empty() {
                    String::new()
                } else {
                    format!(" that takes {}", kinds.join(" and "))
                };
                let kind = receiver.kind();
                let headline = format!("a model knows no method `{name}` of {kind}{given}");
                let message = Diagnostic::new(headline)
                    .note("receiver", described(self, &call.receiver, receiver));
                self.report(&call.method, message)
            }
        }
    }

    /// Calls an operator of the compiler. `name_tokens` are the user's tokens of its name.
    pub(super) fn operator(
        &mut self,
        name: &str,
        name_tokens: &dyn ToTokens,
        operands: &[Operand<'a>],
    ) -> Value<'a> {
        if operands.iter().any(|(_, value)| value.is_poisoned()) {
            return Value::Poison;
        }
        let mut arguments = Vec::with_capacity(operands.len());
        for (expression, value) in operands {
            match value.to_argument() {
                Some(argument) => arguments.push(argument),
                None => {
                    let headline = format!("`{name}` cannot take {}", value.kind());
                    return self.report(*expression, headline);
                }
            }
        }
        self.stand_at(name_tokens);
        match self.builder.call(name, &arguments) {
            Ok(result) => {
                self.spend_tensors(name_tokens);
                self.record_pin(&result, operands);
                Value::from_argument(result)
            }
            Err(diagnostic) => {
                let mut message = Diagnostic::new(diagnostic.message);
                for (label, expression, value) in tensors(operands) {
                    message = message.note(label, described(self, expression, value));
                }
                if let Some(help) = diagnostic.help {
                    message = message.help(help);
                }
                match diagnostic.at {
                    CallPart::Argument(operand) if operand < operands.len() => {
                        self.report(operands[operand].0, message)
                    }
                    CallPart::Argument(_) | CallPart::Call => self.report(name_tokens, message),
                }
            }
        }
    }

    /// Keeps the tokens of a pinned tiling, the last argument, for errors that are found only on a
    /// mesh.
    fn record_pin(&mut self, result: &Argument, operands: &[Operand<'a>]) {
        let Argument::Tensor(value) = *result else { return };
        let is_pinned = self.builder.graph().node(value).pinned.is_some();
        if is_pinned && self.pins.iter().all(|(it, _)| *it != value) {
            self.pins.extend(operands.last().map(|(expression, _)| (value, *expression)));
        }
    }

    /// Converts the value to an argument, or reports that it cannot be one.
    pub(super) fn argument(&mut self, at: &dyn ToTokens, value: &Value<'a>) -> Option<Argument> {
        if value.is_poisoned() {
            return None;
        }
        let argument = value.to_argument();
        if argument.is_none() {
            self.report(at, format!("{} cannot be used here", value.kind()));
        }
        argument
    }
}

/// Returns the tensors among the operands, each with its position in the operator.
fn tensors<'o, 'a>(
    operands: &'o [Operand<'a>],
) -> impl Iterator<Item = (&'static str, &'a Expr, &'o Value<'a>)> {
    let is_tensor = |(_, value): &&'o Operand<'a>| matches!(value, Value::Tensor(_));
    let labels: &[_] = match operands.iter().filter(is_tensor).count() {
        1 => &["operand"],
        _ => &["left", "right"],
    };
    let tensors = operands.iter().filter(is_tensor);
    labels.iter().zip(tensors).map(|(label, (expression, value))| (*label, *expression, value))
}

/// Describes an operand by its source text: "`x` is [512, 784]".
fn described(evaluator: &Evaluator<'_>, expression: &Expr, value: &Value<'_>) -> String {
    let text = source_text(expression);
    match value {
        Value::Tensor(tensor) => {
            let shape = evaluator.builder.shape(*tensor);
            match evaluator.builder.dtype(*tensor) {
                DType::F32 | DType::Bf16 => format!("`{text}` is {shape}"),
                DType::I32 => format!("`{text}` is {shape} of i32"),
            }
        }
        Value::Integer(it) if text != it.to_string() => format!("`{text}` is {it}"),
        other => format!("`{text}` is {}", other.kind()),
    }
}

/// Returns how an operator is called that is a function, and not a method.
fn function_call(name: &str) -> Option<String> {
    let is_function = function_names().contains(&name);
    let mut all = operator_descriptions().into_iter();
    is_function.then(|| all.find(|it| it.name == name).map(|it| it.call)).flatten()
}

/// Returns the call that compares tensors as the expression would, if it is a comparison.
fn comparison(binary: &ExprBinary, left: &Value<'_>) -> Option<String> {
    let (name, mirrored) = match binary.op {
        BinOp::Eq(_) => ("eq", "eq"),
        BinOp::Ne(_) => ("ne", "ne"),
        BinOp::Lt(_) => ("lt", "gt"),
        BinOp::Le(_) => ("le", "ge"),
        BinOp::Gt(_) => ("gt", "lt"),
        BinOp::Ge(_) => ("ge", "le"),
        _ => return None,
    };
    Some(match left {
        Value::Tensor(_) => {
            format!("{}.{name}({})", receiver(&binary.left), source_text(&binary.right))
        }
        _ => format!("{}.{mirrored}({})", receiver(&binary.right), source_text(&binary.left)),
    })
}

/// Returns the source text of an expression on which a method is called.
fn receiver(expression: &Expr) -> String {
    let text = source_text(expression);
    match expression {
        Expr::Binary(_) | Expr::Unary(_) | Expr::Cast(_) | Expr::Reference(_) | Expr::If(_) => {
            format!("({text})")
        }
        _ => text,
    }
}

pub(super) fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}
