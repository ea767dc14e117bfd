//! `concatenate`: tensors one after another along a dim.

use std::{borrow::Cow, fmt};

use soybean_plan::{Combine, Concatenation, DType, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    operators::pad::Pad,
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// A concatenation along this dim, which stays whole; all others can be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concatenate {
    /// The dim.
    pub dim: usize,
}

impl Rules for Concatenate {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let first = &operands[0];
        let n_others = |dim: usize| if dim > self.dim { dim - 1 } else { dim };
        let dims = |shape: &Shape| -> Vec<Dim> {
            let factor = |dim: usize| (dim != self.dim).then(|| factor_id(n_others(dim)));
            let dims = shape.iter().enumerate();
            dims.map(|(dim, &extent)| Dim::new(extent, factor(dim))).collect()
        };
        let total = operands.iter().map(|shape| shape[self.dim]).sum();
        let mut factors = first.to_vec();
        factors.remove(self.dim);
        Signature::new(
            factors,
            operands.iter().map(dims).collect(),
            dims(&first.with(self.dim, total)),
            Combine::Sum,
        )
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
