//! Functions of each element.

use soybean_plan::{Binary, Register, Unary};

use super::{Arguments, Row, SampleArgument, map_one};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
};

const TENSOR: &[SampleArgument] = &[SampleArgument::tensor(&[4, 6])];
const POSITIVE: &[SampleArgument] = &[SampleArgument::positive(&[4, 6])];

/// The row of a function of one element without settings.
macro_rules! row {
    ($name:literal, $doc:literal, $samples:expr, $program:expr) => {
        Row {
            name: $name,
            doc: $doc,
            arguments: &["input"],
            build: |builder, arguments| elementwise(builder, arguments, $program),
            samples: &[$samples],
        }
    };
}

pub(super) const TABLE: &[Row] = &[
    row!("relu", "`max(x, 0)`.", TENSOR, |it, x| it.unary(Unary::Relu, x)),
    row!("relu6", "`min(max(x, 0), 6)`; its gradient at 0 and 6 is 0.", TENSOR, relu6),
    row!("tanh", "The hyperbolic tangent.", TENSOR, |it, x| it.unary(Unary::Tanh, x)),
    row!("sigmoid", "`1 / (1 + e^-x)`.", TENSOR, |it, x| it.unary(Unary::Sigmoid, x)),
    row!("exp", "`e^x`.", TENSOR, |it, x| it.unary(Unary::Exp, x)),
    row!("log", "The natural logarithm.", POSITIVE, |it, x| it.unary(Unary::Log, x)),
    row!("sqrt", "The square root.", POSITIVE, |it, x| it.unary(Unary::Sqrt, x)),
    row!("rsqrt", "`1 / sqrt(x)`.", POSITIVE, rsqrt),
    row!("square", "`x^2`.", TENSOR, |it, x| it.mul(x, x)),
    row!("abs", "The absolute value; its gradient at 0 is 0.", TENSOR, absolute),
    row!("sign", "1 where `x > 0`, -1 where `x < 0`, else 0.", TENSOR, sign),
    row!("gelu", "`x (1 + erf(x / sqrt(2))) / 2`.", TENSOR, gelu),
    row!("gelu_tanh", "The approximation of `gelu` by a hyperbolic tangent.", TENSOR, gelu_tanh),
    row!("silu", "`x sigmoid(x)`.", TENSOR, silu),
    row!("detach", "The same elements, through which no gradient flows.", TENSOR, |it, x| it
        .detach(x)),
    Row {
        name: "leaky_relu",
        doc: "`x` where `x > 0`, else `slope x`.",
        arguments: &["input", "slope"],
        build: |builder, arguments| {
            let slope = arguments.number(1)?;
            elementwise(builder, arguments, |it, x| {
                let (is_positive, scaled) = (it.is_positive(x), it.scale(x, slope));
                it.select(is_positive, x, scaled)
            })
        },
        samples: &[&[SampleArgument::tensor(&[4, 6]), SampleArgument::Float(0.1)]],
    },
];

fn elementwise(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    program: impl Fn(&mut ScalarBuilder, Register) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let mut scalar = ScalarBuilder::default();
    let x = scalar.input(0);
    let result = program(&mut scalar, x);
    Ok(Argument::Tensor(map_one(builder, value, &scalar.finish(result))))
}

// The gradient flows where 0 < x < 6. A NaN stays NaN.
fn relu6(it: &mut ScalarBuilder, x: Register) -> Register {
    let (zero, six) = (it.constant(0.0), it.constant(6.0));
    let (is_below, is_above) = (it.greater(zero, x), it.greater(x, six));
    let (is_zero, is_six) = (it.equal(x, zero), it.equal(x, six));
    let (is_low, is_high) = (it.add(is_below, is_zero), it.add(is_above, is_six));
    let upper = it.select(is_high, six, x);
    it.select(is_low, zero, upper)
}

// rsqrt(x) = 1 / sqrt(x)
pub(super) fn rsqrt(it: &mut ScalarBuilder, x: Register) -> Register {
    let (one, root) = (it.constant(1.0), it.unary(Unary::Sqrt, x));
    it.div(one, root)
}

// |x| = max(x, -x); the gradient at 0 is 0, for the two share it.
pub(super) fn absolute(it: &mut ScalarBuilder, x: Register) -> Register {
    let negative = it.unary(Unary::Negate, x);
    it.binary(Binary::Maximum, x, negative)
}

// sign(x) = (x > 0) - (0 > x)
fn sign(it: &mut ScalarBuilder, x: Register) -> Register {
    let (is_positive, zero) = (it.is_positive(x), it.constant(0.0));
    let is_negative = it.binary(Binary::Greater, zero, x);
    it.sub(is_positive, is_negative)
}

// gelu(x) = x / 2 (1 + erf(x / sqrt(2))). Source: Hendrycks & Gimpel 2016.
fn gelu(it: &mut ScalarBuilder, x: Register) -> Register {
    let scaled = it.scale(x, std::f64::consts::FRAC_1_SQRT_2);
    let erf = it.unary(Unary::Erf, scaled);
    half_of(it, x, erf)
}

// gelu(x) ~ x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). Source: the same.
fn gelu_tanh(it: &mut ScalarBuilder, x: Register) -> Register {
    let square = it.mul(x, x);
    let cube = it.mul(square, x);
    let small = it.scale(cube, 0.044_715);
    let sum = it.add(x, small);
    let scaled = it.scale(sum, (2.0 / std::f64::consts::PI).sqrt());
    let tanh = it.unary(Unary::Tanh, scaled);
    half_of(it, x, tanh)
}

/// Returns `x / 2 (1 + y)`.
fn half_of(it: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    let (sum, half) = (it.offset(y, 1.0), it.scale(x, 0.5));
    it.mul(half, sum)
}

// silu(x) = x sigmoid(x). Source: Elfwing et al. 2017.
fn silu(it: &mut ScalarBuilder, x: Register) -> Register {
    let sigmoid = it.unary(Unary::Sigmoid, x);
    it.mul(x, sigmoid)
}
