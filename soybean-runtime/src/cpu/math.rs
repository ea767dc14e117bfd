//! Functions of one number in single precision, without branches so that loops over them vectorize.

/// The implementation of `a * b + c`.
pub(crate) trait MultiplyAdd {
    /// Returns `a * b + c`.
    fn multiply_add(a: f32, b: f32, c: f32) -> f32;
}

/// As one instruction, rounded once.
#[cfg(target_arch = "x86_64")]
pub(crate) enum Fused {}

/// Two instructions, rounded twice. Without the instruction, the fused form would be a slow call.
pub(crate) enum Separate {}

#[cfg(target_arch = "x86_64")]
impl MultiplyAdd for Fused {
    #[inline(always)]
    fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl MultiplyAdd for Separate {
    #[inline(always)]
    fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// Evaluates the polynomial with these coefficients, highest power first.
#[inline(always)]
fn polynomial<M: MultiplyAdd, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for coefficient in &coefficients[1..] {
        sum = M::multiply_add(sum, x, *coefficient);
    }
    sum
}

// Comparisons are written so that NaN falls through to the value itself.

#[inline(always)]
fn at_least(x: f32, low: f32) -> f32 {
    if x < low { low } else { x }
}

#[inline(always)]
fn at_most(x: f32, high: f32) -> f32 {
    if x > high { high } else { x }
}

/// Returns the larger of the two; NaN if either is NaN.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns `max(x, 0)`; NaN stays NaN.
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    at_least(x, 0.0)
}

/// Computes `e^x`: `e^r` as in [`reduced`], then times `2^n` in two factors so that results may be
/// subnormal.
#[inline(always)]
pub(crate) fn exp<M: MultiplyAdd>(x: f32) -> f32 {
    // Beyond these bounds the result is 0 or infinite.
    let (power, exponent) = reduced::<M>(at_most(at_least(x, -104.0), 89.0));
    let half = exponent >> 1;
    (power + 1.0) * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

/// Computes `e^x - 1` as `(e^r - 1 + 1 - 2^-n) 2^n`, whose first difference is exact near 0.
#[inline(always)]
pub(crate) fn expm1<M: MultiplyAdd>(x: f32) -> f32 {
    // Beyond these bounds the result is -1 or infinite.
    let (power, exponent) = reduced::<M>(at_most(at_least(x, -25.0), 89.0));
    let half = exponent >> 1;
    // Smaller powers of 2 than 2^-126 do not change the sum.
    let rest = 1.0 - power_of_two((-exponent).max(-126));
    let result = (power + rest) * power_of_two(half) * power_of_two(exponent.wrapping_sub(half));
    // The sum would lose the sign of -0.
    if x == 0.0 { x } else { result }
}

/// Returns `e^r - 1` and `n` where `x = n ln 2 + r` with whole `n`; the exponential is a
/// polynomial. Coefficients: Cephes `expf` (S. Moshier).
#[inline(always)]
fn reduced<M: MultiplyAdd>(x: f32) -> (f32, i32) {
    // Adding and subtracting this rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = M::multiply_add(x, std::f32::consts::LOG2_E, ROUND);
    let whole = shifted - ROUND;
    let rest = M::multiply_add(whole, -LN_2_HIGH, x);
    let rest = M::multiply_add(whole, -LN_2_LOW, rest);
    let tail = polynomial::<M, 6>(
        rest,
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5],
    );
    let power = M::multiply_add(tail, rest * rest, rest);
    (power, shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed())
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) << 23).cast_unsigned())
}

/// Computes the natural logarithm: `x = 2^n m` with `m` near 1, `ln m` by a polynomial.
/// Coefficients: Cephes `logf` (S. Moshier).
#[inline(always)]
pub(crate) fn log<M: MultiplyAdd>(x: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let scaled = if is_subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let exponent = (bits.cast_signed() >> 23) as f32 - if is_subnormal { 23.0 } else { 0.0 };
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS)) - 1.0;
    let square = f * f;
    let tail = polynomial::<M, 9>(
        f,
        [
            7.037_683_6e-2,
            -0.115_146_1,
            0.116_769_984,
            -0.124_201_41,
            0.142_493_23,
            -0.166_680_57,
            0.200_007_15,
            -0.249_999_94,
            0.333_333_3,
        ],
    );
    let low = M::multiply_add(tail * f, square, exponent * -2.121_944_4e-4);
    let low = M::multiply_add(square, -0.5, low);
    let finite = M::multiply_add(exponent, 0.693_359_4, f + low);
    let positive = if x < f32::INFINITY { finite } else { x };
    let known = if x > 0.0 { positive } else { f32::NAN };
    if x == 0.0 { f32::NEG_INFINITY } else { known }
}

/// Computes `log(1 + x)`: the logarithm of the rounded sum, plus what rounding lost divided by the
/// sum. Source: Higham 2002, section 1.14.1.
#[inline(always)]
pub(crate) fn log1p<M: MultiplyAdd>(x: f32) -> f32 {
    let sum = 1.0 + x;
    let lost = x - (sum - 1.0);
    let finite = log::<M>(sum) + lost / sum;
    // The logarithm of 0 or of an infinite sum is what it is, and that of 1 is lost entirely.
    let known = if sum == 0.0 || sum == f32::INFINITY { log::<M>(sum) } else { finite };
    if sum == 1.0 { x } else { known }
}

/// Computes the hyperbolic tangent: a polynomial near 0, else `1 - 2 / (e^2x + 1)`. Coefficients:
/// Cephes `tanhf` (S. Moshier).
#[inline(always)]
pub(crate) fn tanh<M: MultiplyAdd>(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let tail = polynomial::<M, 5>(
        square,
        [-5.704_988_7e-3, 2.063_908_8e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8],
    );
    let small = M::multiply_add(tail * square, x, x);
    let large = (1.0 - 2.0 / (exp::<M>(2.0 * size) + 1.0)).copysign(x);
    if size < 0.625 { small } else { large }
}

/// Computes `1 / (1 + e^-x)`, with the exponential of a negative number only, so that no small
/// result is lost.
#[inline(always)]
pub(crate) fn sigmoid<M: MultiplyAdd>(x: f32) -> f32 {
    let power = exp::<M>(-x.abs());
    let over = if x < 0.0 { power } else { 1.0 };
    over / (1.0 + power)
}

/// Computes the error function: a polynomial near 0, else `1 - e^p(x)`. Source: N. Juffa's minimax
/// approximation, below 1 ulp.
#[inline(always)]
pub(crate) fn erf<M: MultiplyAdd>(x: f32) -> f32 {
    // From here on the result rounds to 1.
    let size = at_most(x.abs(), 4.0);
    let square = x * x;
    let tail = polynomial::<M, 6>(
        square,
        [
            -5.967_617e-4,
            4.991_194_2e-3,
            -2.676_813_5e-2,
            0.112_819_925,
            -0.376_125_34,
            0.128_379_17,
        ],
    );
    let small = M::multiply_add(tail, x, x);
    let tail = polynomial::<M, 7>(
        size,
        [
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -0.106_777_88,
            -0.634_846_7,
            -0.128_717_51,
        ],
    );
    let large = (1.0 - exp::<M>(M::multiply_add(tail, size, -size))).copysign(x);
    if size > 0.927_734_4 { large } else { small }
}

#[cfg(test)]
mod tests {
    use soybean_plan::Unary;

    use super::*;

    /// Compares at numbers of every size and sign; `ulps` is the allowed error, in units in the
    /// last place of the result.
    fn check(unary: Unary, function: fn(f32) -> f32, ulps: f64) {
        let mut worst = (0.0, 0.0);
        let special = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            1.0,
            88.72,
            88.73,
            -87.4,
            -103.9,
            -104.1,
        ];
        let all = (0..=u32::MAX / 29_989).map(|it| f32::from_bits(it * 29_989)).chain(special);
        // Numbers of medium size matter most.
        let middle = (-100_000_i32..100_000).map(|it| it as f32 / 1000.0);
        for x in all.chain(middle) {
            let (expected, found) = (unary.evaluate(f64::from(x)), function(x));
            #[expect(clippy::cast_possible_truncation, reason = "the best result there is")]
            let rounded = expected as f32;
            if rounded.is_nan() || rounded.is_infinite() || found.is_nan() || found.is_infinite() {
                assert!(
                    rounded.to_bits() == found.to_bits() || rounded.is_nan() && found.is_nan(),
                    "{unary:?} of {x:e}: {found:e}, not {rounded:e}"
                );
                continue;
            }
            let unit =
                f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
            let error = (f64::from(found) - expected).abs() / unit;
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= ulps, "{unary:?}: {} ulp at {:e}", worst.0, worst.1);
    }

    #[test]
    fn functions_are_accurate_everywhere() {
        check(Unary::Exp, exp::<Separate>, 1.5);
        check(Unary::Log, log::<Separate>, 1.5);
        check(Unary::Tanh, tanh::<Separate>, 2.0);
        check(Unary::Sigmoid, sigmoid::<Separate>, 2.5);
        check(Unary::Erf, erf::<Separate>, 2.0);
        check(Unary::Expm1, expm1::<Separate>, 2.0);
        check(Unary::Log1p, log1p::<Separate>, 2.0);
        check(Unary::Relu, relu, 0.0);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn functions_are_accurate_with_fused_multiply_add() {
        check(Unary::Exp, exp::<Fused>, 1.5);
        check(Unary::Log, log::<Fused>, 1.5);
        check(Unary::Tanh, tanh::<Fused>, 2.0);
        check(Unary::Sigmoid, sigmoid::<Fused>, 2.5);
        check(Unary::Erf, erf::<Fused>, 2.0);
        check(Unary::Expm1, expm1::<Fused>, 2.0);
        check(Unary::Log1p, log1p::<Fused>, 2.0);
    }

    #[test]
    fn functions_of_the_system_are_accurate_everywhere() {
        check(Unary::Sin, f32::sin, 1.0);
        check(Unary::Cos, f32::cos, 1.0);
        check(Unary::Floor, f32::floor, 0.0);
        check(Unary::Round, f32::round_ties_even, 0.0);
    }
}
