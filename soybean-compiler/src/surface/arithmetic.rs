//! Arithmetic with `NumPy` broadcasting.

use soybean_plan::{Binary, Register, ScalarProgram, Unary};

use super::{Arguments, Row, SampleArgument, activation, broadcast::broadcast, map_one};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::{self, ScalarBuilder},
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "add",
        doc: "Written `left + right`; broadcast as NumPy does.",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Add),
        samples: &[
            &[tensor(&[4, 6]), tensor(&[4, 6])],
            &[tensor(&[4, 6]), tensor(&[6])],
            &[tensor(&[4, 1]), tensor(&[3, 1, 6])],
            &[tensor(&[4, 6]), SampleArgument::Float(0.5)],
        ],
    },
    Row {
        name: "sub",
        doc: "Written `left - right`; broadcast.",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Subtract),
        samples: &[
            &[tensor(&[4]), tensor(&[6, 4])],
            &[SampleArgument::Integer(1), tensor(&[4, 6])],
        ],
    },
    Row {
        name: "mul",
        doc: "Written `left * right`; broadcast.",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Multiply),
        samples: &[
            &[tensor(&[4, 6]), tensor(&[4, 1])],
            &[tensor(&[4, 6]), SampleArgument::Integer(3)],
        ],
    },
    Row {
        name: "div",
        doc: "Written `left / right`; broadcast.",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Divide),
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::positive(&[6])],
            &[SampleArgument::Float(2.0), SampleArgument::positive(&[4, 6])],
        ],
    },
    Row {
        name: "neg",
        doc: "Written `-input`.",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            Ok(Argument::Tensor(map_one(builder, value, &scalar::unary(Unary::Negate))))
        },
        samples: &[&[tensor(&[4, 6])]],
    },
    Row {
        name: "powi",
        doc: "`x^n` for an integer `n`.",
        arguments: &["input", "exponent"],
        build: powi,
        samples: POWI_SAMPLES,
    },
    Row {
        name: "pow",
        doc: "`x^y` for a number or a tensor `y`; broadcast. NaN where `x < 0` and `y` is no integer.",
        arguments: &["input", "exponent"],
        build: pow,
        samples: POW_SAMPLES,
    },
    Row {
        name: "reciprocal",
        doc: "`1 / x`.",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            Ok(Argument::Tensor(map_one(builder, value, &integer_power(-1))))
        },
        samples: &[&[SampleArgument::positive(&[4, 6])]],
    },
];

const POW_SAMPLES: &[&[SampleArgument]] = &[
    &[SampleArgument::positive(&[4, 6]), SampleArgument::Float(2.5)],
    &[SampleArgument::positive(&[4, 6]), tensor(&[6])],
    &[tensor(&[4, 6]), SampleArgument::Integer(3)],
    &[tensor(&[4, 6]), SampleArgument::Integer(5)],
    &[SampleArgument::positive(&[5]), SampleArgument::Float(0.5)],
    &[SampleArgument::positive(&[5]), SampleArgument::Float(-0.5)],
    &[SampleArgument::Float(1.5), tensor(&[3, 5])],
];

const POWI_SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(3)],
    &[SampleArgument::positive(&[4, 6]), SampleArgument::Integer(-2)],
    &[tensor(&[4, 6]), SampleArgument::Integer(0)],
];

fn binary(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    function: Binary,
) -> Result<Argument, CallDiagnostic> {
    let operands = [(0, arguments.operand(builder, 0)?), (1, arguments.operand(builder, 1)?)];
    broadcast(builder, arguments, &operands, |it, x| it.binary(function, x[0], x[1]))
}

fn powi(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, exponent) = (arguments.tensor(builder, 0)?, arguments.integer(1)?);
    if exponent.abs() > 64 {
        return Err(arguments
            .fault(1, format!("the exponent must lie between -64 and 64, found {exponent}")));
    }
    Ok(Argument::Tensor(map_one(builder, value, &integer_power(exponent))))
}

/// Returns the program of an integer power, by products.
fn integer_power(exponent: i64) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let result = product(&mut it, x, exponent);
    it.finish(result)
}

fn product(it: &mut ScalarBuilder, x: Register, exponent: i64) -> Register {
    let one = it.constant(1.0);
    let power = (0..exponent.unsigned_abs()).fold(one, |power, _| it.mul(power, x));
    if exponent < 0 { it.div(one, power) } else { power }
}

/// Returns `x^exponent`. Common exponents have faster programs, as in PyTorch. Those below -1 have
/// none: the gradient of a quotient divides by the square of the power, which overflows early.
pub(super) fn power(it: &mut ScalarBuilder, x: Register, exponent: f64) -> Register {
    if (-1.0..=4.0).contains(&exponent) && exponent.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, reason = "a small whole number")]
        return product(it, x, exponent as i64);
    }
    if exponent == 0.5 {
        return it.unary(Unary::Sqrt, x);
    }
    if exponent == -0.5 {
        return activation::rsqrt(it, x);
    }
    let exponent = it.constant(exponent);
    it.binary(Binary::Power, x, exponent)
}

fn pow(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let Some(exponent) = arguments.get(1).as_number() else {
        return binary(builder, arguments, Binary::Power);
    };
    let value = arguments.tensor(builder, 0)?;
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let result = power(&mut it, x, exponent);
    Ok(Argument::Tensor(map_one(builder, value, &it.finish(result))))
}
