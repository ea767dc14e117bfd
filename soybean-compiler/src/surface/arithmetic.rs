//! Arithmetic with `NumPy` broadcasting. That of two tensors or numbers of integers is exact.

use soybean_plan::{Binary, DType, Register, ScalarProgram, Unary};

use super::{
    Arguments, Row, SampleArgument, activation,
    broadcast::{Operand, broadcast, compute},
    map_one,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "add",
        doc: "Written `left + right`; broadcast as NumPy does.",
        arguments: &["left", "right"],
        build: |builder, arguments| exact(builder, arguments, [Binary::Add, Binary::AddIntegers]),
        samples: &[
            &[tensor(&[4, 6]), tensor(&[4, 6])],
            &[tensor(&[4, 6]), tensor(&[6])],
            &[tensor(&[4, 1]), tensor(&[3, 1, 6])],
            &[tensor(&[4, 6]), SampleArgument::Float(0.5)],
            &[LABELS, SampleArgument::Integer(16_777_217)],
            &[LABELS, SHORT_LABELS],
        ],
    },
    Row {
        name: "sub",
        doc: "Written `left - right`; broadcast.",
        arguments: &["left", "right"],
        build: |builder, arguments| {
            exact(builder, arguments, [Binary::Subtract, Binary::SubtractIntegers])
        },
        samples: &[
            &[tensor(&[4]), tensor(&[6, 4])],
            &[SampleArgument::Integer(7), LABELS],
            &[SampleArgument::Integer(1), tensor(&[4, 6])],
        ],
    },
    Row {
        name: "mul",
        doc: "Written `left * right`; broadcast.",
        arguments: &["left", "right"],
        build: |builder, arguments| {
            exact(builder, arguments, [Binary::Multiply, Binary::MultiplyIntegers])
        },
        samples: &[
            &[LABELS, SHORT_LABELS],
            &[tensor(&[4, 6]), tensor(&[4, 1])],
            &[tensor(&[4, 6]), SampleArgument::Integer(3)],
        ],
    },
    Row {
        name: "div",
        doc: "Written `left / right`; broadcast.",
        arguments: &["left", "right"],
        build: divide,
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
            let operand = [(0, arguments.comparable(builder, 0)?)];
            compute(builder, arguments, &operand, &[0], |it, x| {
                if it.is_integer(x[0]) {
                    let zero = it.integer_constant(0);
                    return it.binary(Binary::SubtractIntegers, zero, x[0]);
                }
                it.unary(Unary::Negate, x[0])
            })
        },
        samples: &[&[tensor(&[4, 6])], &[LABELS]],
    },
    Row {
        name: "floor_divide",
        doc: "The largest integer that is not above the exact `left / right`; broadcast. No gradient flows through it, and an integer by 0 is 0.",
        arguments: &["left", "right"],
        build: |builder, arguments| {
            divided(builder, arguments, [Binary::FloorDivide, Binary::FloorDivideIntegers])
        },
        samples: DIVISIONS,
    },
    Row {
        name: "remainder",
        doc: "`left - floor(left / right) right` without rounding on the way; its sign is that of `right`; broadcast. An integer by 0 is itself.",
        arguments: &["left", "right"],
        build: |builder, arguments| {
            divided(builder, arguments, [Binary::Remainder, Binary::RemainderOfIntegers])
        },
        samples: DIVISIONS,
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

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[3, 4], n_classes: 9 };
const SHORT_LABELS: SampleArgument = SampleArgument::Labels { shape: &[4], n_classes: 7 };

const DIVISIONS: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::positive(&[6])],
    &[tensor(&[4, 6]), SampleArgument::Float(0.75)],
    &[LABELS, SampleArgument::Integer(-3)],
    &[SampleArgument::Integer(-7), SampleArgument::Labels { shape: &[1], n_classes: 4 }],
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

/// Adds a function of numbers, or its counterpart of integers.
fn exact(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    [of_numbers, of_integers]: [Binary; 2],
) -> Result<Argument, CallDiagnostic> {
    let operands = [(0, arguments.comparable(builder, 0)?), (1, arguments.comparable(builder, 1)?)];
    compute(builder, arguments, &operands, &[0, 1], |it, x| {
        let function = if it.is_integer(x[0]) { of_integers } else { of_numbers };
        it.binary(function, x[0], x[1])
    })
}

fn divide(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    binary(builder, arguments, Binary::Divide).map_err(|diagnostic| {
        let is_integer = |position| {
            let value = arguments.any_tensor(position);
            value.is_ok_and(|it| builder.dtype(it) == DType::I32)
        };
        match [0, 1].into_iter().any(is_integer) {
            true => diagnostic.with_help(
                "`x.floor_divide(y)` divides integers, and `.to_f32()` makes numbers of them",
            ),
            false => diagnostic,
        }
    })
}

/// Adds a function of a dividend and a divisor, which is no constant 0 for integers.
fn divided(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    functions: [Binary; 2],
) -> Result<Argument, CallDiagnostic> {
    let operands = [arguments.comparable(builder, 0)?, arguments.comparable(builder, 1)?];
    if let [Operand::Tensor(value), Operand::Number(0.0)] = operands
        && builder.dtype(value) == DType::I32
    {
        return Err(arguments.fault(1, "integers are divided by 0"));
    }
    exact(builder, arguments, functions)
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

// Powers of the reciprocal neither overflow nor vanish, nor do their gradients, where those of the
// number do on the way.
fn product(it: &mut ScalarBuilder, x: Register, exponent: i64) -> Register {
    let one = it.constant(1.0);
    let base = if exponent < 0 { it.div(one, x) } else { x };
    (0..exponent.unsigned_abs()).fold(one, |power, _| it.mul(power, base))
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
