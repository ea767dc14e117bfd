//! Softmax and what is made of its parts: exponentials of elements less their maximum.

use soybean_plan::{Combine, Unary};

use super::{Arguments, map, map_one, reduction::reduce};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::elementwise::all_dims,
    scalar,
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

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

pub(super) fn softmax(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(shifted(builder, arguments)?.softmax(builder)))
}

pub(super) fn log_sum_exp(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let dim = arguments.dim(1, builder.shape(value).len())?;
    Ok(Argument::Tensor(log_sum_exp_along(builder, value, dim)))
}

// log(sum(e^(x - m))) + m; the gradient of the first term is the softmax, and m is a constant.
pub(super) fn log_sum_exp_along(builder: &mut Builder, value: Value, dim: usize) -> Value {
    let parts = Shifted::by_finite_maximum(builder, value, dim);
    let mut scalar = ScalarBuilder::default();
    let (sum, maximum) = (scalar.input(0), scalar.input(1));
    let (log, constant) = (scalar.unary(Unary::Log, sum), scalar.detach(maximum));
    let result = scalar.add(log, constant);
    let shape = builder.shape(parts.sum);
    let operands = [(parts.sum, all_dims(&shape)), (parts.maximum, all_dims(&shape))];
    map(builder, shape, &operands, &scalar.finish(result))
}

pub(super) fn log_softmax(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(shifted(builder, arguments)?.log_softmax(builder)))
}
