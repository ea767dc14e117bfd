//! Functions of each element.

use soybean_plan::{Binary, NumberRange, Register, Unary};

use super::{Arguments, Row, SampleArgument, map_one};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
};

const TENSOR: &[SampleArgument] = &[SampleArgument::tensor(&[4, 6])];
/// Beyond the kinks of functions that are linear or constant outside of `-3..3`.
const WIDE: &[SampleArgument] = &[SampleArgument::Tensor { shape: &[4, 6], low: -5.0, high: 5.0 }];
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
    row!("expm1", "`e^x - 1`, exact near 0.", TENSOR, |it, x| it.unary(Unary::Expm1, x)),
    row!("log1p", "`log(1 + x)`, exact near 0.", POSITIVE, |it, x| it.unary(Unary::Log1p, x)),
    row!("sin", "The sine.", WIDE, |it, x| it.unary(Unary::Sin, x)),
    row!("cos", "The cosine.", WIDE, |it, x| it.unary(Unary::Cos, x)),
    row!("erf", "The error function.", TENSOR, |it, x| it.unary(Unary::Erf, x)),
    row!("square", "`x^2`.", TENSOR, |it, x| it.mul(x, x)),
    row!("abs", "The absolute value; its gradient at 0 is 0.", TENSOR, absolute),
    row!("sign", "1 where `x > 0`, -1 where `x < 0`, else 0.", TENSOR, sign),
    row!("gelu", "`x (1 + erf(x / sqrt(2))) / 2`.", TENSOR, gelu),
    row!("gelu_tanh", "The approximation of `gelu` by a hyperbolic tangent.", TENSOR, gelu_tanh),
    row!("silu", "`x sigmoid(x)`.", TENSOR, silu),
    row!("softplus", "`log(1 + e^x)`.", WIDE, softplus),
    row!("logsigmoid", "`log(sigmoid(x))`.", WIDE, log_sigmoid),
    row!("mish", "`x tanh(log(1 + e^x))`.", WIDE, mish),
    row!("softsign", "`x / (1 + |x|)`.", TENSOR, softsign),
    row!("hardsigmoid", "`min(max(x + 3, 0), 6) / 6`.", WIDE, hard_sigmoid),
    row!("hardswish", "`x min(max(x + 3, 0), 6) / 6`.", WIDE, hard_swish),
    row!("selu", "`elu` of `alpha = 1.673`, times 1.051.", TENSOR, selu),
    row!(
        "floor",
        "The largest integer that is not above `x`; no gradient flows through it.",
        WIDE,
        |it, x| it.unary(Unary::Floor, x)
    ),
    row!(
        "ceil",
        "The smallest integer that is not below `x`; no gradient flows through it.",
        WIDE,
        ceil
    ),
    row!(
        "round",
        "The nearest integer, the even one of two; no gradient flows through it.",
        WIDE,
        |it, x| it.unary(Unary::Round, x)
    ),
    row!("detach", "The same elements, through which no gradient flows.", TENSOR, |it, x| it
        .detach(x)),
    Row {
        name: "elu",
        doc: "`x` where `x > 0`, else `alpha (e^x - 1)`.",
        arguments: &["input", "alpha"],
        build: |builder, arguments| {
            let alpha = arguments.number_in(1, NumberRange::FINITE)?;
            elementwise(builder, arguments, |it, x| elu(it, x, alpha, 1.0))
        },
        samples: &[&[SampleArgument::tensor(&[4, 6]), SampleArgument::Float(0.75)]],
    },
    Row {
        name: "celu",
        doc: "`x` where `x > 0`, else `alpha (e^(x / alpha) - 1)`.",
        arguments: &["input", "alpha"],
        build: |builder, arguments| {
            let alpha = arguments.number_in(1, NumberRange::FINITE)?;
            if alpha == 0.0 {
                return Err(arguments.expected_number(1, "a number other than 0", alpha));
            }
            elementwise(builder, arguments, |it, x| elu(it, x, alpha, alpha))
        },
        samples: &[&[SampleArgument::tensor(&[4, 6]), SampleArgument::Float(1.5)]],
    },
    Row {
        name: "leaky_relu",
        doc: "`x` where `x > 0`, else `slope x`.",
        arguments: &["input", "slope"],
        build: |builder, arguments| {
            let slope = arguments.number_in(1, NumberRange::FINITE)?;
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
    let (positive, six) = (it.unary(Unary::Relu, x), it.constant(6.0));
    let is_high = it.greater_or_equal(positive, six);
    it.select(is_high, six, positive)
}

// x where x > 0, else alpha (e^(x / divisor) - 1), whose argument is never positive if the
// divisor is, so that the gradient by what is not chosen is finite. Sources: Clevert et al. 2015,
// Barron 2017 (celu).
fn elu(it: &mut ScalarBuilder, x: Register, alpha: f64, divisor: f64) -> Register {
    let (is_positive, zero) = (it.is_positive(x), it.constant(0.0));
    let negative = it.select(is_positive, zero, x);
    let divisor = it.constant(divisor);
    let scaled = it.div(negative, divisor);
    let power = it.unary(Unary::Expm1, scaled);
    let below = it.scale(power, alpha);
    it.select(is_positive, x, below)
}

// Source: Klambauer et al. 2017.
fn selu(it: &mut ScalarBuilder, x: Register) -> Register {
    let elu = elu(it, x, 1.673_263_242_354_377_2, 1.0);
    it.scale(elu, 1.050_700_987_355_480_5)
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), in which nothing overflows. -|x| is chosen by the
// same condition as the maximum, so that the gradient at 0 is 1/2.
pub(super) fn softplus(it: &mut ScalarBuilder, x: Register) -> Register {
    let (is_positive, negative) = (it.is_positive(x), it.unary(Unary::Negate, x));
    let exponent = it.select(is_positive, negative, x);
    let power = it.unary(Unary::Exp, exponent);
    let (rest, maximum) = (it.unary(Unary::Log1p, power), it.unary(Unary::Relu, x));
    it.add(maximum, rest)
}

// log(sigmoid(x)) = -log(1 + e^-x)
fn log_sigmoid(it: &mut ScalarBuilder, x: Register) -> Register {
    let negative = it.unary(Unary::Negate, x);
    let softplus = softplus(it, negative);
    it.unary(Unary::Negate, softplus)
}

// Source: Misra 2019.
fn mish(it: &mut ScalarBuilder, x: Register) -> Register {
    let softplus = softplus(it, x);
    let tanh = it.unary(Unary::Tanh, softplus);
    it.mul(x, tanh)
}

fn softsign(it: &mut ScalarBuilder, x: Register) -> Register {
    let size = absolute(it, x);
    let divisor = it.offset(size, 1.0);
    it.div(x, divisor)
}

// min(max(x + 3, 0), 6) / 6. Source: Howard et al. 2019.
fn hard_sigmoid(it: &mut ScalarBuilder, x: Register) -> Register {
    let shifted = it.offset(x, 3.0);
    let (clamped, six) = (relu6(it, shifted), it.constant(6.0));
    it.div(clamped, six)
}

fn hard_swish(it: &mut ScalarBuilder, x: Register) -> Register {
    let sigmoid = hard_sigmoid(it, x);
    it.mul(x, sigmoid)
}

// ceil(x) = -floor(-x)
fn ceil(it: &mut ScalarBuilder, x: Register) -> Register {
    let negative = it.unary(Unary::Negate, x);
    let floor = it.unary(Unary::Floor, negative);
    it.unary(Unary::Negate, floor)
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
// x^2 is bounded where tanh is 1 or -1, for the gradient has a product of 0 and x^2.
fn gelu_tanh(it: &mut ScalarBuilder, x: Register) -> Register {
    let (square, bound) = (it.mul(x, x), it.constant(1e4));
    let is_large = it.greater(square, bound);
    let square = it.select(is_large, bound, square);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::derivative;

    /// Checks values and derivatives at numbers of all sizes against those of double precision.
    fn check(
        function: impl Fn(&mut ScalarBuilder, Register) -> Register,
        expected: &[(f64, f64, f64)],
    ) {
        let mut it = ScalarBuilder::default();
        let x = it.input(0);
        let result = function(&mut it, x);
        let program = it.finish(result);
        let slope = derivative(&program, 0, 1).expect("it depends on its input");
        for &(x, value, derivative) in expected {
            let found = program.evaluate(&[x], &[])[0];
            let found = [found, slope.evaluate(&[x, found, 1.0], &[])[0]];
            for (found, expected) in found.into_iter().zip([value, derivative]) {
                let is_close = (found - expected).abs() <= 1e-12 * expected.abs();
                assert!(found == expected || is_close, "{x}: {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn functions_and_their_derivatives_are_finite_far_from_zero() {
        let tiny = (-80.0_f64).exp();
        let all = f64::INFINITY;
        let half = 2.0_f64.ln();
        check(softplus, &[(-80.0, tiny, tiny), (0.0, half, 0.5), (1e4, 1e4, 1.0), (all, all, 1.0)]);
        check(log_sigmoid, &[(-1e4, -1e4, 1.0), (0.0, -half, 0.5), (80.0, -tiny, tiny)]);
        check(mish, &[(-1e4, 0.0, 0.0), (0.0, 0.0, 0.6), (1e4, 1e4, 1.0)]);
        check(softsign, &[(-3.0, -0.75, 0.0625), (0.0, 0.0, 1.0)]);
        check(|it, x| elu(it, x, 2.0, 1.0), &[(-1e4, -2.0, 0.0), (0.0, 0.0, 2.0), (1e4, 1e4, 1.0)]);
        check(|it, x| elu(it, x, 2.0, 2.0), &[(-1e4, -2.0, 0.0), (0.0, 0.0, 1.0), (1e4, 1e4, 1.0)]);
    }

    #[test]
    fn kinks_have_the_derivatives_of_pytorch() {
        check(hard_sigmoid, &[(-3.0, 0.0, 0.0), (0.0, 0.5, 1.0 / 6.0), (3.0, 1.0, 0.0)]);
        check(hard_swish, &[(-3.0, 0.0, 0.0), (0.0, 0.0, 0.5), (3.0, 3.0, 1.0)]);
        check(relu6, &[(0.0, 0.0, 0.0), (6.0, 6.0, 0.0)]);
    }
}
