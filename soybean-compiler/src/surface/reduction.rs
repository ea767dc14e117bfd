//! Reductions over dims, and softmax, which is made of them.

use soybean_plan::{Combine, Register, ScalarProgram, Unary};

use super::{Arguments, Row, SampleArgument, map, map_one};
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
        doc: "The sum over dims.",
        arguments: &["input", "dims"],
        build: |builder, arguments| {
            let (value, kept) = operand(builder, arguments)?;
            Ok(Argument::Tensor(reduce(builder, value, Combine::Sum, &kept)))
        },
        samples: SAMPLES,
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
            let (value, kept) = operand(builder, arguments)?;
            Ok(Argument::Tensor(reduce(builder, value, Combine::Max, &kept)))
        },
        samples: SAMPLES,
    },
    Row {
        name: "min",
        doc: "The smallest element over dims.",
        arguments: &["input", "dims"],
        build: |builder, arguments| {
            let (value, kept) = operand(builder, arguments)?;
            // min(x) = -max(-x)
            let negative = map_one(builder, value, &scalar::unary(Unary::Negate));
            let maximum = reduce(builder, negative, Combine::Max, &kept);
            let minimum = map_one(builder, maximum, &scalar::unary(Unary::Negate));
            Ok(Argument::Tensor(minimum))
        },
        samples: SAMPLES,
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
        build: log_sum_exp,
        samples: SOFTMAX_SAMPLES,
    },
    Row {
        name: "softmax",
        doc: "`e^x / sum(e^x)` along a dim.",
        arguments: &["input", "dim"],
        build: softmax,
        samples: SOFTMAX_SAMPLES,
    },
    Row {
        name: "log_softmax",
        doc: "`log(softmax(x))` along a dim.",
        arguments: &["input", "dim"],
        build: log_softmax,
        samples: SOFTMAX_SAMPLES,
    },
];

/// Returns the tensor, and the dims that remain.
fn operand(
    builder: &Builder,
    arguments: &Arguments<'_>,
) -> Result<(Value, Vec<FactorId>), CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let rank = builder.shape(value).len();
    let dims = arguments.dims(1, rank)?;
    Ok((value, (0..rank).filter(|dim| !dims.contains(dim)).map(factor_id).collect()))
}

/// Returns the reduction of a tensor to some of its dims.
pub(super) fn reduce(
    builder: &mut Builder,
    value: Value,
    combine: Combine,
    kept: &[FactorId],
) -> Value {
    let shape = builder.shape(value);
    builder.graph.add(Reduce::new(shape, combine, kept.to_vec()).into(), &[value])
}

/// Returns the mean of a tensor over all dims but some: the sum of the elements divided by their
/// number.
pub(super) fn mean_to(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let shape = builder.shape(value);
    let n_kept: usize = kept.iter().map(|&dim| shape[dim as usize]).product();
    let sum = reduce(builder, value, Combine::Sum, kept);
    divided(builder, sum, shape.n_elements() / n_kept)
}

/// Returns a tensor divided by a number: one rounding, and none for the mean of equal numbers.
fn divided(builder: &mut Builder, value: Value, divisor: usize) -> Value {
    let mut scalar = ScalarBuilder::default();
    let (x, divisor) = (scalar.input(0), scalar.constant(divisor as f64));
    let quotient = scalar.div(x, divisor);
    map_one(builder, value, &scalar.finish(quotient))
}

fn mean(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, kept) = operand(builder, arguments)?;
    Ok(Argument::Tensor(mean_to(builder, value, &kept)))
}

/// Returns a tensor minus its mean over all dims but some.
pub(super) fn centered(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    less(builder, value, kept, |_, mean| mean)
}

fn less(
    builder: &mut Builder,
    value: Value,
    kept: &[FactorId],
    program: impl Fn(&mut ScalarBuilder, Register) -> Register,
) -> Value {
    let (shape, mean) = (builder.shape(value), mean_to(builder, value, kept));
    let mut scalar = ScalarBuilder::default();
    let (x, mean_of_x) = (scalar.input(0), scalar.input(1));
    let mean_of_x = program(&mut scalar, mean_of_x);
    let difference = scalar.sub(x, mean_of_x);
    let operands = [(value, all_dims(&shape)), (mean, kept.to_vec())];
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
    let sum = sum_of_squares(builder, value, &kept);
    Ok(Argument::Tensor(map_one(builder, sum, &root_of_spread())))
}

/// Returns the sum of squares over all dims but some.
pub(super) fn sum_of_squares(builder: &mut Builder, value: Value, kept: &[FactorId]) -> Value {
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let square = it.mul(x, x);
    let squares = map_one(builder, value, &it.finish(square));
    reduce(builder, squares, Combine::Sum, kept)
}

// The sum of squares of what is less its mean, divided by n - correction.
fn variance(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Value, CallDiagnostic> {
    let (value, kept) = operand(builder, arguments)?;
    let correction = arguments.integer(2)?;
    let shape = builder.shape(value);
    let n_kept: usize = kept.iter().map(|&dim| shape[dim as usize]).product();
    let n = shape.n_elements() / n_kept;
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
    Ok(spread(builder, value, &kept, degrees))
}

// sum((x - m)^2) / degrees, with m the mean, so that nothing cancels.
// By the mean there is no gradient: d/dm sum((x - m)^2) = -2 sum(x - m) = 0.
pub(super) fn spread(
    builder: &mut Builder,
    value: Value,
    kept: &[FactorId],
    degrees: usize,
) -> Value {
    let difference = less(builder, value, kept, ScalarBuilder::detach);
    let sum = sum_of_squares(builder, difference, kept);
    divided(builder, sum, degrees)
}

/// Returns the parts of a softmax: the elements minus their maximum along the dim, and the sums of
/// the exponentials of these.
///
/// No gradient flows through the maximum: the result does not depend on it.
pub(super) struct Shifted {
    /// `x - max(x)`
    pub(super) shifted: Value,
    /// `sum(e^(x - max(x)))`, without the dim.
    pub(super) sum: Value,
    /// `max(x)`, without the dim, or what stands for it.
    maximum: Value,
    /// The dims of the sum.
    pub(super) kept: Vec<FactorId>,
}

impl Shifted {
    pub(super) fn new(builder: &mut Builder, value: Value, dim: usize) -> Self {
        let kept = others(builder, value, dim);
        let maximum = reduce(builder, value, Combine::Max, &kept);
        Self::by(builder, value, maximum, kept)
    }

    /// Returns the parts with 0 in place of an infinite maximum, as PyTorch's `logsumexp` has them:
    /// the difference of two infinities would be no number.
    fn by_finite_maximum(builder: &mut Builder, value: Value, dim: usize) -> Self {
        let kept = others(builder, value, dim);
        let maximum = reduce(builder, value, Combine::Max, &kept);
        let mut it = ScalarBuilder::default();
        let (x, zero) = (it.input(0), it.constant(0.0));
        let finite = [f64::INFINITY, f64::NEG_INFINITY].into_iter().fold(x, |finite, infinity| {
            let infinity = it.constant(infinity);
            let is_infinite = it.equal(x, infinity);
            it.select(is_infinite, zero, finite)
        });
        let finite = map_one(builder, maximum, &it.finish(finite));
        Self::by(builder, value, finite, kept)
    }

    fn by(builder: &mut Builder, value: Value, maximum: Value, kept: Vec<FactorId>) -> Self {
        let shape = builder.shape(value);
        let mut scalar = ScalarBuilder::default();
        let (x, maximum_of_x) = (scalar.input(0), scalar.input(1));
        let constant = scalar.detach(maximum_of_x);
        let difference = scalar.sub(x, constant);
        let operands = [(value, all_dims(&shape)), (maximum, kept.clone())];
        let shifted = map(builder, shape, &operands, &scalar.finish(difference));
        let powers = map_one(builder, shifted, &scalar::unary(Unary::Exp));
        let sum = reduce(builder, powers, Combine::Sum, &kept);
        Self { shifted, sum, maximum, kept }
    }

    /// Returns `e^x / sum(e^x)`.
    pub(super) fn softmax(&self, builder: &mut Builder) -> Value {
        self.map(builder, |it, shifted, sum| {
            let power = it.unary(Unary::Exp, shifted);
            it.div(power, sum)
        })
    }

    /// Returns `x - log(sum(e^x))`.
    pub(super) fn log_softmax(&self, builder: &mut Builder) -> Value {
        self.map(builder, |it, shifted, sum| {
            let log = it.unary(Unary::Log, sum);
            it.sub(shifted, log)
        })
    }

    /// Returns a map of the shifted elements and the sums.
    fn map(
        &self,
        builder: &mut Builder,
        program: impl Fn(&mut ScalarBuilder, u16, u16) -> u16,
    ) -> Value {
        let shape = builder.shape(self.shifted);
        let mut scalar = ScalarBuilder::default();
        let (shifted, sum) = (scalar.input(0), scalar.input(1));
        let result = program(&mut scalar, shifted, sum);
        let operands = [(self.shifted, all_dims(&shape)), (self.sum, self.kept.clone())];
        map(builder, shape, &operands, &scalar.finish(result))
    }
}

/// Returns all dims but one.
fn others(builder: &Builder, value: Value, dim: usize) -> Vec<FactorId> {
    (0..builder.shape(value).len()).filter(|&it| it != dim).map(factor_id).collect()
}

fn shifted(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Shifted, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let dim = arguments.dim(1, builder.shape(value).len())?;
    Ok(Shifted::new(builder, value, dim))
}

fn softmax(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(shifted(builder, arguments)?.softmax(builder)))
}

// log(sum(e^(x - m))) + m; the gradient of the first term is the softmax, and m is a constant.
fn log_sum_exp(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let dim = arguments.dim(1, builder.shape(value).len())?;
    let parts = Shifted::by_finite_maximum(builder, value, dim);
    let mut scalar = ScalarBuilder::default();
    let (sum, maximum) = (scalar.input(0), scalar.input(1));
    let (log, constant) = (scalar.unary(Unary::Log, sum), scalar.detach(maximum));
    let result = scalar.add(log, constant);
    let shape = builder.shape(parts.sum);
    let operands = [(parts.sum, all_dims(&shape)), (parts.maximum, all_dims(&shape))];
    Ok(Argument::Tensor(map(builder, shape, &operands, &scalar.finish(result))))
}

fn log_softmax(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(shifted(builder, arguments)?.log_softmax(builder)))
}
