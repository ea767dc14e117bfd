//! Initial values of parameters, as in PyTorch. Source of `he` and `xavier`: He et al. 2015, Glorot
//! & Bengio 2010.

use soybean_plan::{Init, NumberRange, Shape};

use crate::{builder::Argument, diagnostic::CallDiagnostic};

/// One initializer: its name, the names and ranges of its arguments, and what it gives for a shape.
struct Row {
    name: &'static str,
    arguments: &'static [(&'static str, NumberRange)],
    init: Rule,
}

/// The properties of a parameter that an initializer depends on.
enum Rule {
    /// Nothing.
    Fixed(fn(&[f64]) -> Init),
    /// The numbers of inputs and outputs of the weight.
    OfFans(fn(Fans) -> Init),
}

use Rule::{Fixed, OfFans};

/// Returns the inputs of each output of a weight `[out, in, ..]`, and the outputs of each input.
/// Both count the dims after the first two.
#[derive(Clone, Copy)]
struct Fans {
    n_inputs: f64,
    n_outputs: f64,
}

const TABLE: &[Row] = &[
    Row { name: "zeros", arguments: &[], init: Fixed(|_| Init::Constant(0.0)) },
    Row { name: "ones", arguments: &[], init: Fixed(|_| Init::Constant(1.0)) },
    Row {
        name: "constant",
        arguments: &[("value", NumberRange::FINITE)],
        init: Fixed(|numbers| Init::Constant(numbers[0])),
    },
    Row {
        name: "normal",
        arguments: &[("std", NumberRange::NON_NEGATIVE)],
        init: Fixed(|numbers| Init::Normal { mean: 0.0, std: numbers[0] }),
    },
    Row {
        name: "trunc_normal",
        arguments: &[("std", NumberRange::NON_NEGATIVE)],
        init: Fixed(|numbers| Init::TruncatedNormal { mean: 0.0, std: numbers[0] }),
    },
    Row {
        name: "uniform",
        arguments: &[("low", NumberRange::FINITE), ("high", NumberRange::FINITE)],
        init: Fixed(|numbers| Init::Uniform { low: numbers[0], high: numbers[1] }),
    },
    Row {
        name: "he_normal",
        arguments: &[],
        init: OfFans(|fans| normal((2.0 / fans.n_inputs).sqrt())),
    },
    Row {
        name: "he_uniform",
        arguments: &[],
        init: OfFans(|fans| within((6.0 / fans.n_inputs).sqrt())),
    },
    Row {
        name: "xavier_normal",
        arguments: &[],
        init: OfFans(|fans| normal((2.0 / (fans.n_inputs + fans.n_outputs)).sqrt())),
    },
    Row {
        name: "xavier_uniform",
        arguments: &[],
        init: OfFans(|fans| within((6.0 / (fans.n_inputs + fans.n_outputs)).sqrt())),
    },
];

fn normal(std: f64) -> Init {
    Init::Normal { mean: 0.0, std }
}

fn within(bound: f64) -> Init {
    Init::Uniform { low: -bound, high: bound }
}

/// Returns the names of all initializers.
#[must_use]
pub fn init_names() -> Vec<&'static str> {
    TABLE.iter().map(|row| row.name).collect()
}

/// Returns the initial values of a parameter of this shape.
pub(crate) fn resolve(
    name: &str,
    arguments: &[Argument],
    shape: &[usize],
) -> Result<Init, CallDiagnostic> {
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        return Err(CallDiagnostic::call(format!("unknown initializer `{name}`"))
            .with_help(format!("the initializers are {}", init_names().join(", "))));
    };
    if arguments.len() != row.arguments.len() {
        let (expected, found) = (row.arguments.len(), arguments.len());
        let plural = if expected == 1 { "" } else { "s" };
        let names: Vec<&str> = row.arguments.iter().map(|it| it.0).collect();
        let call = format!("`{name}({})`", names.join(", "));
        return Err(CallDiagnostic::call(format!(
            "{call} takes {expected} argument{plural}, found {found}"
        )));
    }
    let number = |(position, argument): (usize, &Argument)| {
        let fault = || {
            CallDiagnostic::argument(
                position,
                format!("`{name}` takes numbers, found {}", argument.kind()),
            )
        };
        let number = argument.as_number().ok_or_else(fault)?;
        let (argument, range) = row.arguments[position];
        range.check(argument, number).map_err(|message| {
            CallDiagnostic::argument(position, format!("`{name}`: {message}"))
        })?;
        Ok(number)
    };
    let numbers = arguments.iter().enumerate().map(number).collect::<Result<Vec<_>, _>>()?;
    if let [low, high] = numbers[..]
        && low > high
    {
        let message =
            format!("`{name}`: `high` must not be less than `low`, found {low} and {high}");
        return Err(CallDiagnostic::argument(1, message));
    }
    match row.init {
        Fixed(init) => Ok(init(&numbers)),
        OfFans(init) => Ok(init(fans(name, shape)?)),
    }
}

fn fans(name: &str, shape: &[usize]) -> Result<Fans, CallDiagnostic> {
    let [outputs, inputs, ref window @ ..] = *shape else {
        let found = Shape::new(shape);
        let message = format!("`{name}` fills weights of at least 2 dims, found {found}");
        let help = "the dims are [outputs, inputs, ..]; `normal(std)` fills any shape";
        return Err(CallDiagnostic::call(message).with_help(help));
    };
    let n_taps: f64 = window.iter().map(|&it| it as f64).product();
    Ok(Fans { n_inputs: inputs as f64 * n_taps, n_outputs: outputs as f64 * n_taps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_are_those_of_weights_of_outputs_and_inputs() {
        let check = |name, shape: &[usize], expected| {
            assert_eq!(resolve(name, &[], shape), Ok(expected), "{name} of {shape:?}");
        };
        check("he_normal", &[7, 8], normal(0.5));
        check("he_uniform", &[7, 6, 2, 2], within(0.5));
        check("xavier_normal", &[3, 5], normal(0.5));
        check("xavier_uniform", &[2, 4, 2, 2], within(0.5));
        assert!(resolve("he_normal", &[], &[7]).is_err());
    }
}
