//! Arguments of the model's functions: each must be of the type that the signature states.

use soybean_plan::DType;
use syn::{Expr, ExprCall, FnArg, ItemFn, Type};

use crate::{
    diagnostic::Diagnostic, evaluate::Evaluator, operator::signature_text, source_text::whole_text,
    tensor_type::TensorType, value::Value,
};

/// The most members of an array or tuple that a message describes.
const MAX_MEMBERS: usize = 4;

/// An argument of another type than its parameter.
pub(super) struct Mismatch {
    position: usize,
    /// What the argument is.
    found: String,
    /// The shape that the type states, if the argument has another one.
    required: Option<String>,
    /// True for an integer in place of a float.
    lacks_point: bool,
}

impl<'a> Evaluator<'a> {
    /// Returns the arguments that are not of the types of the function's parameters. The frame on
    /// top is the function's own, in which the dims of types are evaluated.
    pub(super) fn mismatches(
        &mut self,
        function: &'a ItemFn,
        arguments: &[Value<'a>],
    ) -> Vec<Mismatch> {
        let mut mismatches = Vec::new();
        for (position, (input, argument)) in function.sig.inputs.iter().zip(arguments).enumerate() {
            if let FnArg::Typed(input) = input
                && !argument.is_poisoned()
                && !self.is_of_type(argument, &input.ty)
            {
                mismatches.push(Mismatch {
                    position,
                    found: self.found(argument),
                    required: self.required(argument, &input.ty),
                    lacks_point: matches!(argument, Value::Integer(_)) && is_float(&input.ty),
                });
            }
        }
        mismatches
    }

    /// Reports wrong arguments at the call.
    pub(super) fn report_mismatches(
        &mut self,
        call: &'a ExprCall,
        function: &'a ItemFn,
        mismatches: &[Mismatch],
    ) {
        let name = &function.sig.ident;
        for Mismatch { position, found, required, lacks_point } in mismatches {
            let FnArg::Typed(input) = &function.sig.inputs[*position] else { continue };
            let (ty, parameter) = (whole_text(&input.ty), whole_text(&input.pat));
            let headline = format!("`{name}`: expected `{ty}` for `{parameter}`, found {found}");
            let argument = &call.args[*position];
            let mut message =
                Diagnostic::new(headline).note("fn", format!("`{}`", signature_text(function)));
            if let Some(required) = required {
                message = message.note("type", required);
            }
            if *lacks_point {
                message = message.help(match argument {
                    Expr::Lit(_) => format!("write `{}.0`", whole_text(argument)),
                    _ => format!("numbers are converted with `as {ty}`"),
                });
            }
            self.report(argument, message);
        }
    }

    /// Returns whether a value is of a type, as far as the macro knows the type. rustc checks the
    /// others.
    pub(super) fn is_of_type(&mut self, value: &Value<'a>, ty: &'a Type) -> bool {
        match (ty, value) {
            (Type::Group(it), _) => self.is_of_type(value, &it.elem),
            (Type::Paren(it), _) => self.is_of_type(value, &it.elem),
            (Type::Reference(it), _) => self.is_of_type(value, &it.elem),
            (Type::Tuple(it), Value::Tuple(members)) => {
                members.len() == it.elems.len()
                    && members.iter().zip(&it.elems).all(|(it, ty)| self.is_of_type(it, ty))
            }
            (Type::Array(it), Value::List(members)) => {
                self.is_length(&it.len, members.len())
                    && members.iter().all(|member| self.is_of_type(member, &it.elem))
            }
            (Type::Slice(it), Value::List(members)) => {
                members.iter().all(|member| self.is_of_type(member, &it.elem))
            }
            (Type::Tuple(_) | Type::Array(_) | Type::Slice(_), _) => false,
            (Type::Path(path), _) => match TensorType::of(ty) {
                Some(parts) => self.is_tensor(value, ty, &parts),
                None => path.path.get_ident().is_none_or(|it| is_of(value, &it.to_string())),
            },
            _ => true,
        }
    }

    /// Returns what the type of a tensor states, if the value is a tensor.
    fn required(&mut self, value: &Value<'a>, ty: &'a Type) -> Option<String> {
        if let Type::Reference(it) = ty {
            return self.required(value, &it.elem);
        }
        let (Value::Tensor(_), parts) = (value, TensorType::of(ty)?) else { return None };
        let (dtype, shape) = self.dtype_and_shape(ty, &parts)?;
        Some(format!("{dtype} {shape}"))
    }

    fn is_length(&mut self, length: &'a Expr, n_members: usize) -> bool {
        match self.value(length) {
            Value::Integer(length) => usize::try_from(length) == Ok(n_members),
            _ => true,
        }
    }

    fn is_tensor(&mut self, value: &Value<'a>, ty: &'a Type, parts: &TensorType<'a>) -> bool {
        let Value::Tensor(tensor) = *value else { return false };
        parts.dims.is_empty() || self.fits(tensor, ty, parts)
    }

    /// Describes an argument: "a tensor [32, 64]".
    fn found(&self, value: &Value<'a>) -> String {
        match value {
            Value::Tensor(tensor) => {
                let shape = self.builder.shape(*tensor);
                match self.builder.dtype(*tensor) {
                    DType::F32 | DType::Bf16 => format!("a tensor {shape}"),
                    DType::I32 => format!("a tensor {shape} of i32"),
                }
            }
            Value::Integer(number) => format!("the integer {number}"),
            Value::List(members) => format!("[{}]", self.found_in(members)),
            Value::Tuple(members) => format!("({})", self.found_in(members)),
            other => other.kind().to_owned(),
        }
    }

    fn found_in(&self, members: &[Value<'a>]) -> String {
        let found = |member: &Value<'a>| match member {
            Value::Integer(number) => number.to_string(),
            other => self.found(other),
        };
        let mut found: Vec<_> = members.iter().take(MAX_MEMBERS).map(found).collect();
        if members.len() > MAX_MEMBERS {
            found.push("..".to_owned());
        }
        found.join(", ")
    }
}

fn is_float(ty: &Type) -> bool {
    let Type::Path(it) = ty else { return false };
    it.path.is_ident("f32") || it.path.is_ident("f64")
}

/// Returns whether a value is of a primitive type. Other types are unknown.
fn is_of(value: &Value<'_>, ty: &str) -> bool {
    match ty {
        "usize" | "u8" | "u16" | "u32" | "u64" | "u128" => {
            matches!(value, Value::Integer(it) if *it >= 0)
        }
        "isize" | "i8" | "i16" | "i32" | "i64" | "i128" => matches!(value, Value::Integer(_)),
        "f32" | "f64" => matches!(value, Value::Float(_)),
        "bool" => matches!(value, Value::Boolean(_)),
        "str" => matches!(value, Value::Text(_)),
        "Init" => matches!(value, Value::Init(_)),
        _ => true,
    }
}
