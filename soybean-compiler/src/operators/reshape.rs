//! `reshape`: the same elements in the same order under another shape; costs nothing.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// A reshape to this shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// The shape of the result.
    pub shape: Shape,
}

/// Ranges `from..to` of dims of the operand and the result that hold the same elements.
struct Group {
    operand: (usize, usize),
    result: (usize, usize),
}

impl Reshape {
    /// Returns the finest groups of neighboring dims with equal products. Dims of extent 1 join
    /// the group before them.
    fn groups(&self, operand: &Shape) -> Vec<Group> {
        let mut groups = Vec::new();
        let (mut i, mut j) = (0, 0);
        while i < operand.len() || j < self.shape.len() {
            let start = (i, j);
            let (mut left, mut right) = (1, 1);
            loop {
                if left <= right && i < operand.len() {
                    left *= operand[i];
                    i += 1;
                } else if j < self.shape.len() {
                    right *= self.shape[j];
                    j += 1;
                } else {
                    left *= operand[i];
                    i += 1;
                }
                let is_closed = left == right && i > start.0 && j > start.1;
                if is_closed || (i == operand.len() && j == self.shape.len()) {
                    break;
                }
            }
            groups.push(Group { operand: (start.0, i), result: (start.1, j) });
        }
        groups
    }
}

impl Rules for Reshape {
    // In each group the outermost dims share their leading digits: the greatest common divisor of
    // the extents is a factor of both.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let shape = &operands[0];
        let whole = |shape: &Shape| -> Vec<Dim> {
            shape.iter().map(|&extent| Dim::new(extent, None)).collect()
        };
        let (mut operand, mut result) = (whole(shape), whole(&self.shape));
        let mut factors = Vec::new();
        for group in self.groups(shape) {
            let outermost =
                |shape: &Shape, (from, to): (usize, usize)| (from..to).find(|&dim| shape[dim] > 1);
            let dims = (outermost(shape, group.operand), outermost(&self.shape, group.result));
            let (Some(i), Some(j)) = dims else { continue };
            let extent = greatest_common_divisor(shape[i], self.shape[j]);
            if extent > 1 {
                operand[i].factor = Some(factor_id(factors.len()));
                result[j].factor = Some(factor_id(factors.len()));
                factors.push(extent);
            }
        }
        Signature::new(factors, vec![operand], result, Combine::Sum).additive()
    }

    // d reshape(x) = reshape back
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let shape = builder.shape(call.operands[0]);
        vec![Some(builder.add(Self { shape }.into(), &[call.gradient]))]
    }

    fn keeps_zeros(&self) -> bool {
        true
    }

    fn resized(&self, _factors: &[usize], result: Shape) -> Option<Operator> {
        Some(Self { shape: result }.into())
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    // [n, c, h, w] to [n, c, p, q] is [n, h, w, c] to [n, p, q, c].
    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        let keeps_channels = operands[0].get(..2).is_some_and(|it| self.shape.starts_with(it));
        let shape = ChannelsLast::shape(&self.shape);
        keeps_channels.then(|| ChannelsLast::everywhere(Self { shape }.into(), 1))
    }

    fn kernel(&self, _operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        None
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        operands[0]
    }

    fn is_alias(&self) -> bool {
        true
    }
}

/// Returns the largest number that divides both; `a` if `b` is 0.
pub(crate) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl fmt::Display for Reshape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reshape")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &[usize], to: &[usize], expected: &str) {
        let reshape = Reshape { shape: Shape::new(to) };
        assert_eq!(reshape.signature(&[Shape::new(from)]).to_string(), expected);
    }

    #[test]
    fn the_outermost_dims_of_a_group_carry_its_splits() {
        check(&[8, 3, 4], &[8, 12], "ij_->i(j_)");
        check(&[8, 12], &[8, 3, 4], "i(j_)->ij_");
        check(&[8, 1], &[8], "i_->i");
        check(&[6, 4], &[4, 6], "(i_)_->(i_)_");
        check(&[2, 3], &[6], "i_->(i_)");
        check(&[], &[1], "->_");
    }
}
