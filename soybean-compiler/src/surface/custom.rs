//! The operators of users, in three calls: the operator, the gradient of its result, and the
//! gradients of its operands, which a function of the user computes from it.
//!
//! Models do not write these calls. The macro makes them, and recipes contain them.

use std::collections::BTreeMap;

use soybean_plan::{DType, IndexNotation, Shape};

use super::{Arguments, Row};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::custom::{Custom, FutureGradient},
    value::Value,
};

/// The name of the call of an operator, by its first argument.
pub(crate) const CUSTOM: &str = "custom";

pub(super) const TABLE: &[Row] = &[
    Row {
        name: CUSTOM,
        doc: "The result of a user's operator.",
        arguments: &["name", "notation", "names", "symbol", "cuda", "operands"],
        build: custom,
        samples: &[],
    },
    Row {
        name: "future_gradient",
        doc: "The gradient with respect to a result, for the function that computes gradients.",
        arguments: &["result"],
        build: future_gradient,
        samples: &[],
    },
    Row {
        name: "set_gradients",
        doc: "Says which tensors are the gradients of an operator's operands.",
        arguments: &["future_gradient", "gradients"],
        build: set_gradients,
        samples: &[],
    },
];

/// The gradient of a user's operator.
#[derive(Clone, Debug)]
pub struct CustomGradient {
    /// The result of the operator.
    pub result: Value,
    /// The tensor that stands for the gradient of the result.
    pub future: Value,
    /// The gradients of the operands.
    pub gradients: Vec<Value>,
}

impl CustomGradient {
    /// Returns the gradient in another graph, given the replacement of each tensor.
    pub(crate) fn remapped(&self, of: &BTreeMap<Value, Value>) -> Self {
        let gradients = self.gradients.iter().map(|it| of[it]).collect();
        Self { result: of[&self.result], future: of[&self.future], gradients }
    }
}

fn custom(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let name = arguments.text(0)?;
    let notation =
        IndexNotation::parse(arguments.text(1)?).map_err(|message| arguments.fault(1, message))?;
    let operands = tensors(arguments, 5)?;
    let shapes: Vec<Shape> = operands.iter().map(|&it| builder.shape(it)).collect();
    let extents: Vec<&[usize]> = shapes.iter().map(|it| &it[..]).collect();
    if notation.operands().len() != operands.len() {
        let (expected, found) = (notation.operands().len(), operands.len());
        let message = format!("`{name}` takes {expected} tensors, found {found}");
        return Err(CallDiagnostic::call(message));
    }
    for (number, operand) in operands.iter().enumerate() {
        let dtype = builder.dtype(*operand);
        if dtype != DType::F32 {
            let message = format!("`{name}`: takes tensors of f32, found {dtype}");
            return Err(CallDiagnostic::argument(number, message)
                .with_help("`.to_f32()` makes numbers of integers"));
        }
    }
    notation.check(&extents).map_err(|(number, message)| {
        CallDiagnostic::argument(number, format!("`{name}`: {message}"))
            .with_help(format!("the operator is `{notation}`"))
    })?;
    let whole = notation.letters().into_iter().filter(|it| !IndexNotation::is_split(*it));
    let n_whole =
        whole.fold(1, |n: u64, it| n.saturating_mul(notation.extent(it, &extents) as u64));
    let cuda = match arguments.get(4) {
        Argument::All => None,
        _ => Some(arguments.text(4)?.to_owned()),
    };
    let names = match arguments.get(2) {
        Argument::List(names) => names.iter().map(text).collect(),
        _ => None,
    };
    let operator = Custom {
        name: name.to_owned(),
        names: names.ok_or_else(|| arguments.fault(2, "expected a list of names"))?,
        symbol: arguments.text(3)?.to_owned(),
        notation,
        cuda,
        n_whole,
    };
    Ok(Argument::Tensor(builder.graph.add(operator.into(), &operands)))
}

/// Returns a list of tensors of any types.
fn tensors(arguments: &Arguments<'_>, position: usize) -> Result<Vec<Value>, CallDiagnostic> {
    let tensor = |it: &Argument| match it {
        Argument::Tensor(value) => Some(*value),
        _ => None,
    };
    match arguments.get(position) {
        Argument::List(members) => members.iter().map(tensor).collect(),
        _ => None,
    }
    .ok_or_else(|| arguments.fault(position, "expected a list of tensors"))
}

fn text(argument: &Argument) -> Option<String> {
    match argument {
        Argument::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn future_gradient(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let result = arguments.tensor(builder, 0)?;
    Ok(Argument::Tensor(builder.graph.add(FutureGradient.into(), &[result])))
}

fn set_gradients(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let future = arguments.tensor(builder, 0)?;
    if builder.graph.operator_as::<FutureGradient>(future).is_none() {
        return Err(arguments.fault(0, "expected the gradient of an operator's result"));
    }
    let result = builder.graph.operands(future)[0];
    let operands = builder.graph.operands(result);
    let gradients = tensors(arguments, 1)?;
    if gradients.len() != operands.len() {
        let (expected, found) = (operands.len(), gradients.len());
        return Err(CallDiagnostic::call(format!(
            "a gradient function returns the gradient of each operand: expected {expected} tensors, \
             found {found}"
        )));
    }
    for (number, (gradient, operand)) in gradients.iter().zip(&operands).enumerate() {
        let (expected, found) = (builder.shape(*operand), builder.shape(*gradient));
        if expected != found {
            return Err(CallDiagnostic::call(format!(
                "the gradient of operand {number} has its shape {expected}, found {found}"
            )));
        }
    }
    builder.custom_gradients.push(CustomGradient { result, future, gradients });
    Ok(Argument::List(Vec::new()))
}
