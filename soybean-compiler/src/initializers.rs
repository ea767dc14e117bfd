//! How parameters are filled at the start. Source of `he` and `xavier`: He et al. 2015, Glorot & Bengio 2010, as PyTorch has them.

use soybean_plan::Init;

use crate::{builder::Argument, fault::Fault};

/// One initializer: its name, the names of its arguments, and what it gives for a shape.
struct Row {
    name: &'static str,
    arguments: &'static [&'static str],
    init: fn(&[f64], &[usize]) -> Init,
}

const TABLE: &[Row] = &[
    Row { name: "zeros", arguments: &[], init: |_, _| Init::Constant(0.0) },
    Row { name: "ones", arguments: &[], init: |_, _| Init::Constant(1.0) },
    Row { name: "constant", arguments: &["value"], init: |numbers, _| Init::Constant(numbers[0]) },
    Row {
        name: "normal",
        arguments: &["std"],
        init: |numbers, _| Init::Normal { mean: 0.0, std: numbers[0] },
    },
    Row {
        name: "uniform",
        arguments: &["low", "high"],
        init: |numbers, _| Init::Uniform { low: numbers[0], high: numbers[1] },
    },
    Row {
        name: "he",
        arguments: &[],
        init: |_, shape| Init::Normal { mean: 0.0, std: (2.0 / fan_in(shape)).sqrt() },
    },
    Row {
        name: "xavier",
        arguments: &[],
        init: |_, shape| {
            let bound = (6.0 / (fan_in(shape) + fan_out(shape))).sqrt();
            Init::Uniform { low: -bound, high: bound }
        },
    },
];

/// The names of all initializers.
#[must_use]
pub fn init_names() -> Vec<&'static str> {
    TABLE.iter().map(|row| row.name).collect()
}

/// What an initializer gives for a parameter of this shape.
pub(crate) fn resolve(name: &str, arguments: &[Argument], shape: &[usize]) -> Result<Init, Fault> {
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        return Err(Fault::call(format!("unknown initializer `{name}`"))
            .with_help(format!("the initializers are {}", init_names().join(", "))));
    };
    if arguments.len() != row.arguments.len() {
        let (expected, found) = (row.arguments.join(", "), arguments.len());
        return Err(Fault::call(format!(
            "`{name}({expected})` takes {} arguments, found {found}",
            row.arguments.len()
        )));
    }
    let number = |(position, argument): (usize, &Argument)| {
        let fault = || {
            Fault::argument(position, format!("`{name}` takes numbers, found {}", argument.kind()))
        };
        argument.as_number().ok_or_else(fault)
    };
    let numbers = arguments.iter().enumerate().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok((row.init)(&numbers, shape))
}

/// The number of inputs of each output: the first extent of `[in, out]`.
fn fan_in(shape: &[usize]) -> f64 {
    shape.first().copied().unwrap_or(1) as f64
}

/// The number of outputs of each input: the second extent of `[in, out]`.
fn fan_out(shape: &[usize]) -> f64 {
    shape.get(1).or(shape.first()).copied().unwrap_or(1) as f64
}
