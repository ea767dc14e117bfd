//! `concatenate`: tensors one after another along a dim.

use std::{borrow::Cow, fmt};

use soybean_plan::{Combine, Concatenation, DType, Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Rounding, Rules},
    operators::pad::Pad,
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// A concatenation along this dim. All other dims can be split, and this one if the operands are
/// equally long: the ranks then split each part of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concatenate {
    /// The dim.
    pub dim: usize,
}

impl Rules for Concatenate {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let first = &operands[0];
        let length = first[self.dim];
        let is_equal = operands.iter().all(|it| it[self.dim] == length);
        let can_be_split: Vec<usize> =
            (0..first.len()).filter(|&dim| dim != self.dim || is_equal).collect();
        let factor = |dim: usize| can_be_split.iter().position(|&it| it == dim).map(factor_id);
        let dims = |shape: &Shape| -> Vec<Dim> {
            let of = |(dim, &extent): (usize, &usize)| match factor(dim) {
                Some(factor) if dim == self.dim => Dim::of_parts(extent, factor),
                factor => Dim::new(extent, factor),
            };
            shape.iter().enumerate().map(of).collect()
        };
        let total = operands.iter().map(|shape| shape[self.dim]).sum();
        let factors = can_be_split.iter().map(|&dim| first[dim]).collect();
        Signature::new(
            factors,
            operands.iter().map(dims).collect(),
            dims(&first.with(self.dim, total)),
            Combine::Sum,
        )
        .additive()
    }

    // Each operand has its part of the gradient.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let whole = builder.shape(call.result);
        let mut start = 0;
        let mut part = |&operand: &Value| {
            let length = builder.shape(operand)[self.dim];
            let crop = Pad::crop(whole, self.dim, start, length);
            start += length;
            builder.needs_gradient(operand).then(|| builder.add(crop.into(), &[call.gradient]))
        };
        call.operands.iter().map(&mut part).collect()
    }

    fn keeps_zeros(&self) -> bool {
        true
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        let n_dims = operands[0].len();
        let dim = ChannelsLast::place(self.dim, n_dims);
        (n_dims > 2).then(|| ChannelsLast::everywhere(Self { dim }.into(), operands.len()))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let length = |shape: &Shape| shape[self.dim..].iter().product();
        let lengths: Vec<usize> = operands.iter().map(length).collect();
        let outer = result[..self.dim].iter().product();
        Some(Concatenation { outer, lengths: Cow::Owned(lengths) }.into())
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        operands[0]
    }
}

impl fmt::Display for Concatenate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "concatenate {}", self.dim)
    }
}
