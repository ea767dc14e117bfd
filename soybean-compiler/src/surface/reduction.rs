//! Reductions over dims, and softmax, which is made of them.

use soybean_plan::{Binary, Combine, DType, Register, ScalarProgram, Unary};

use super::{Arguments, Row, SampleArgument, activation, map, map_one, softmax};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, reduce::Reduce},
    scalar::{self, ScalarBuilder},
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::All],
    &[tensor(&[4, 6]), SampleArgument::Integer(0)],
    &[tensor(&[2, 4, 6]), SampleArgument::Integer(-1)],
    &[tensor(&[2, 4, 6]), SampleArgument::List(&[0, 2])],
];
const LABELS: SampleArgument = SampleArgument::Labels { shape: &[4, 6], n_classes: 9 };
/// The samples of operators that take integers, too.
const EXACT_SAMPLES: &[&[SampleArgument]] = &[
    SAMPLES[0],
    SAMPLES[1],
    SAMPLES[2],
    SAMPLES[3],
    &[LABELS, SampleArgument::All],
    &[LABELS, SampleArgument::Integer(-1)],
];
const SOFTMAX_SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(1)],
    &[tensor(&[4, 2, 6]), SampleArgument::Integer(0)],
    &[tensor(&[3, 1, 5]), SampleArgument::Integer(-2)],
];
const VARIANCE_SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(-1), SampleArgument::Integer(1)],
    &[tensor(&[3, 5]), SampleArgument::All, SampleArgument::Integer(0)],
    &[tensor(&[2, 1, 6]), SampleArgument::List(&[0, 2]), SampleArgument::Integer(1)],
];

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "sum",
        doc: "The sum over dims. That of integers is modulo 2^32.",
        arguments: &["input", "dims"],
        build: |builder, arguments| {
            let (value, kept) = any_operand(builder, arguments)?;
            Ok(Argument::Tensor(reduce(builder, value, Combine::Sum, &kept)))
        },
        samples: EXACT_SAMPLES,
    },
    Row {
        name: "mean",
        doc: "The mean over dims.",
        arguments: &["input", "dims"],
        build: mean,
        samples: SAMPLES,
    },
    Row {
        name: "max",
        doc: "The largest element over dims.",
        arguments: &["input", "dims"],
        build: |builder, arguments| {
            let (value, kept) = any_operand(builder, arguments)?;
            Ok(Argument::Tensor(reduce(builder, value, Combine::Max, &kept)))
        },
        samples: EXACT_SAMPLES,
    },
    Row {
        name: "min",
        doc: "The smallest element over dims.",
        arguments: &["input", "dims"],
        build: |builder, arguments| {
            let (value, kept) = any_operand(builder, arguments)?;
            // min(x) = -max(-x). The least integer has no opposite: min(x) = -1 - max(-1 - x).
            let opposite = match builder.dtype(value) {
                DType::F32 | DType::Bf16 => scalar::unary(Unary::Negate),
                DType::I32 => complement(),
            };
            let negative = map_one(builder, value, &opposite);
            let maximum = reduce(builder, negative, Combine::Max, &kept);
            Ok(Argument::Tensor(map_one(builder, maximum, &opposite)))
        },
        samples: EXACT_SAMPLES,
    },
    Row {
        name: "var",
        doc: "The variance over dims, divided by the number of elements less `correction`.",
        arguments: &["input", "dims", "correction"],
        build: |builder, arguments| Ok(Argument::Tensor(variance(builder, arguments)?)),
        samples: VARIANCE_SAMPLES,
    },
    Row {
        name: "std",
        doc: "The square root of `var`.",
        arguments: &["input", "dims", "correction"],
        build: |builder, arguments| {
            let variance = variance(builder, arguments)?;
            Ok(Argument::Tensor(map_one(builder, variance, &root_of_spread())))
        },
        samples: VARIANCE_SAMPLES,
    },
    Row {
        name: "norm",
        doc: "The square root of the sum of squares over dims; its gradient at 0 is 0.",
        arguments: &["input", "dims"],
        build: norm,
        samples: SAMPLES,
    },
    Row {
        name: "logsumexp",
        doc: "`log(sum(e^x))` along a dim.",
        arguments: &["input", "dim"],
        build: softmax::log_sum_exp,
        samples: SOFTMAX_SAMPLES,
    },
    Row {
        name: "softmax",
        doc: "`e^x / sum(e^x)` along a dim.",
        arguments: &["input", "dim"],
        build: softmax::softmax,
        samples: SOFTMAX_SAMPLES,
    },
    Row {
        name: "log_softmax",
        doc: "`log(softmax(x))` along a dim.",
        arguments: &["input", "dim"],
        build: softmax::log_softmax,
        samples: SOFTMAX_SAMPLES,
    },
];

/// Returns the tensor of numbers, and the dims that remain.
fn operand(
    builder: &Builder,
    arguments: &Arguments<'_>,
) -> Result<(Value, Vec<FactorId>), CallDiagnostic> {
    arguments.tensor(builder, 0)?;
    any_operand(builder, arguments)
}

/// Returns the tensor of any type, and the dims that remain.
fn any_operand(
    builder: &Builder,
    arguments: &Arguments<'_>,
) -> Result<(Value, Vec<FactorId>), CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let rank = builder.shape(value).len();
    let dims = arguments.dims(1, rank)?;
    Ok((value, (0..rank).filter(|dim| !dims.contains(dim)).map(factor_id).collect()))
}

/// Returns the program `-1 - x` of an integer, which reverses the order of all integers.
fn complement() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (minus_one, x) = (it.integer_constant(-1), it.integer(0));
    let result = it.binary(Binary::SubtractIntegers, minus_one, x);
    it.finish(result)
}

/// Returns the reduction of a tensor to some of its dims.
pub(super) fn reduce(
    builder: &mut Builder,
    value: Value,
    combine: Combine,
    kept: &[FactorId],
) -> Value {
    let (shape, kept) = (builder.shape(value), kept.to_vec());
    let operator = match builder.dtype(value) {
        DType::F32 | DType::Bf16 => Reduce::new(shape, combine, kept),
        DType::I32 => Reduce::of_integers(shape, combine, kept),
    };
    builder.graph.add(operator.into(), &[value])
}

/// Returns the mean of a tensor over all dims but some: the sum of the elements divided by their
/// number.
pub(super) fn mean_to(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let sum = reduce(builder, value, Combine::Sum, kept);
    let n = n_reduced(builder, value, kept);
    divided(builder, sum, n as f64)
}

/// Returns a tensor divided by a number: one rounding, and none for the mean of equal numbers.
fn divided(builder: &mut Builder, value: Value, divisor: f64) -> Value {
    let mut scalar = ScalarBuilder::default();
    let (x, divisor) = (scalar.input(0), scalar.constant(divisor));
    let quotient = scalar.div(x, divisor);
    map_one(builder, value, &scalar.finish(quotient))
}

// The elements are divided by a power of 2 before the sum, so that it does not overflow where the
// mean does not. The mean has the same bits as without.
fn mean(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, kept) = operand(builder, arguments)?;
    let power = n_reduced(builder, value, &kept).next_power_of_two() as f64;
    let mut sum = Reduce::new(builder.shape(value), Combine::Sum, kept.clone());
    sum.map.program = scalar::multiple(1.0 / power);
    let sum = builder.graph.add(sum.into(), &[value]);
    let n_shares = n_reduced(builder, value, &kept) as f64 / power;
    Ok(Argument::Tensor(divided(builder, sum, n_shares)))
}

/// Returns the number of elements of which each element of a reduction is made.
fn n_reduced(builder: &Builder, value: Value, kept: &[FactorId]) -> usize {
    let shape = builder.shape(value);
    shape.n_elements() / kept.iter().map(|&dim| shape[dim as usize]).product::<usize>()
}

/// Returns a tensor minus its mean over all dims but some.
pub(super) fn centered(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let mean = exact(builder, value, kept, |builder, it| mean_to(builder, it, kept));
    less(builder, value, mean, kept, |_, mean| mean)
}

/// Returns a mean that has some dims of a tensor, without its rounding errors: what is left when
/// it is subtracted is exact where it is small, and its own mean is what rounded in the first. So
/// equal numbers are their mean. The gradient is that of the first mean.
pub(super) fn exact(
    builder: &mut Builder,
    value: Value,
    kept: &[FactorId],
    mean: impl Fn(&mut Builder, Value) -> Value,
) -> Value {
    let (first, _, rest) = with_rest(builder, value, kept, mean);
    corrected(builder, first, rest)
}

/// Returns a mean `m` that has some dims of a tensor `x`, `x - m` without a gradient by `m`, and
/// the mean of that, which is what rounded in `m`.
pub(super) fn with_rest(
    builder: &mut Builder,
    value: Value,
    kept: &[FactorId],
    mean: impl Fn(&mut Builder, Value) -> Value,
) -> (Value, Value, Value) {
    let first = mean(builder, value);
    let difference = less(builder, value, first, kept, ScalarBuilder::detach);
    let rest = mean(builder, difference);
    (first, difference, rest)
}

/// Returns a mean plus what it lacks, which has no gradient.
pub(super) fn corrected(builder: &mut Builder, mean: Value, rest: Value) -> Value {
    let shape = builder.shape(mean);
    let mut it = ScalarBuilder::default();
    let (mean_is, rest_is) = (it.input(0), it.input(1));
    let rest_is = it.detach(rest_is);
    let sum = it.add(mean_is, rest_is);
    let operands = [mean, rest].map(|it| (it, all_dims(&shape)));
    map(builder, shape, &operands, &it.finish(sum))
}

/// Returns a tensor minus what a program makes of another one, which has some of its dims.
pub(super) fn less(
    builder: &mut Builder,
    value: Value,
    other: Value,
    kept: &[FactorId],
    program: impl Fn(&mut ScalarBuilder, Register) -> Register,
) -> Value {
    let shape = builder.shape(value);
    let mut scalar = ScalarBuilder::default();
    let (x, other_input) = (scalar.input(0), scalar.input(1));
    let subtracted = program(&mut scalar, other_input);
    let difference = scalar.sub(x, subtracted);
    let operands = [(value, all_dims(&shape)), (other, kept.to_vec())];
    map(builder, shape, &operands, &scalar.finish(difference))
}

/// Returns the square root of a variance or of a sum of squares. Its gradient at 0 is 0, as in
/// PyTorch, and not infinite.
fn root_of_spread() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (x, zero, one) = (it.input(0), it.constant(0.0), it.constant(1.0));
    let is_zero = it.equal(x, zero);
    let other = it.select(is_zero, one, x);
    let root = it.unary(Unary::Sqrt, other);
    let result = it.select(is_zero, zero, root);
    it.finish(result)
}

fn norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, kept) = operand(builder, arguments)?;
    Ok(Argument::Tensor(length(builder, value, &kept)))
}

/// Returns the square root of the sum of squares over all dims but some.
pub(super) fn length(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let Rescaled { value, scale } = Rescaled::new(builder, value, kept);
    let sum = sum_of_squares(builder, value, kept);
    let root = map_one(builder, sum, &root_of_spread());
    let mut it = ScalarBuilder::default();
    let (root_is, scale_is) = (it.input(0), it.input(1));
    let scale_is = it.detach(scale_is);
    let length = it.div(root_is, scale_is);
    let shape = builder.shape(root);
    let operands = [root, scale].map(|it| (it, all_dims(&shape)));
    map(builder, shape, &operands, &it.finish(length))
}

/// A tensor times a power of 2, so that its squares are neither infinite nor subnormal.
pub(super) struct Rescaled {
    pub(super) value: Value,
    /// The power, 1 for numbers of usual size; it has some of the dims.
    pub(super) scale: Value,
}

impl Rescaled {
    /// Rescales the elements that share an index in the dims that are kept. Powers of 2 change no
    /// bit of what is computed.
    pub(super) fn new(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Self {
        Self::by(builder, value, kept, 2.0_f64.powi(100))
    }

    /// As [`Self::new`], but leaves small numbers as they are.
    pub(super) fn down(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Self {
        Self::by(builder, value, kept, 1.0)
    }

    /// Rescales with this power for small numbers.
    fn by(builder: &mut Builder, value: Value, kept: &[FactorId], of_small: f64) -> Self {
        let mut it = ScalarBuilder::default();
        let x = it.input(0);
        let size = activation::absolute(&mut it, x);
        let sizes = map_one(builder, value, &it.finish(size));
        let largest = reduce(builder, sizes, Combine::Max, kept);
        let mut it = ScalarBuilder::default();
        let (x, one) = (it.input(0), it.constant(1.0));
        let [large, small] = [50, -50].map(|exponent| it.constant(2.0_f64.powi(exponent)));
        let [down, up] = [2.0_f64.powi(-80), of_small].map(|power| it.constant(power));
        let (is_large, is_small) = (it.greater(x, large), it.greater(small, x));
        let scale = it.select(is_small, up, one);
        let scale = it.select(is_large, down, scale);
        let scale = map_one(builder, largest, &it.finish(scale));
        let shape = builder.shape(value);
        let mut it = ScalarBuilder::default();
        let (x, scale_is) = (it.input(0), it.input(1));
        let scale_is = it.detach(scale_is);
        let scaled = it.mul(x, scale_is);
        let operands = [(value, all_dims(&shape)), (scale, kept.to_vec())];
        Self { value: map(builder, shape, &operands, &it.finish(scaled)), scale }
    }
}

/// Returns the sum of squares over all dims but some.
pub(super) fn sum_of_squares(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let squares = squares(builder, value);
    reduce(builder, squares, Combine::Sum, kept)
}

/// Returns the square of each element.
pub(super) fn squares(builder: &mut Builder, value: Value) -> Value {
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let square = it.mul(x, x);
    map_one(builder, value, &it.finish(square))
}

// The sum of squares of what is less its mean, divided by n - correction.
fn variance(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Value, CallDiagnostic> {
    let (value, kept) = operand(builder, arguments)?;
    let correction = arguments.integer(2)?;
    let n = n_reduced(builder, value, &kept);
    let degrees = match correction {
        0 => n,
        1 if n > 1 => n - 1,
        1 => {
            return Err(arguments
                .fault(1, "a variance with correction 1 needs at least 2 elements, found 1"));
        }
        _ => {
            return Err(
                arguments.fault(2, format!("`correction` must be 0 or 1, found {correction}"))
            );
        }
    };
    // What is left when the mean is subtracted is exact, and its own mean is what rounded in the
    // first. So equal numbers have a variance of 0, and large means cost no digits.
    let (_, difference, rest) =
        with_rest(builder, value, &kept, |builder, it| mean_to(builder, it, &kept));
    Ok(spread(builder, (difference, rest), &kept, degrees))
}

// sum((x - m)^2) / degrees, with m the mean, so that nothing cancels.
// By the mean there is no gradient: d/dm sum((x - m)^2) = -2 sum(x - m) = 0.
pub(super) fn spread(
    builder: &mut Builder,
    (value, mean): (Value, Value),
    kept: &[FactorId],
    degrees: usize,
) -> Value {
    let difference = less(builder, value, mean, kept, ScalarBuilder::detach);
    let sum = sum_of_squares(builder, difference, kept);
    divided(builder, sum, degrees as f64)
}
