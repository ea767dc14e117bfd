//! `pad`: a window of a tensor, which may begin or end inside of it or reach beyond it.

use std::fmt;

use soybean_plan::{Combine, DType, ImageLayout, Kernel, MAX_RANK, Padding, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// A window. Dims that it does not change can be split. So can a dim of equal parts of which it is
/// one: the ranks split each part. Source: the `Pad` of XLA, whose edges may be negative.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// The number of elements before the operand's first along each dim; negative if the window
    /// begins inside.
    pub low: Vec<i32>,
    /// The shape of the result.
    pub shape: Shape,
    /// The value of elements outside the operand.
    pub fill: f64,
}

impl Pad {
    /// Returns the window of this length along one dim that begins at `start`.
    #[must_use]
    pub fn crop(shape: Shape, dim: usize, start: usize, length: usize) -> Self {
        let mut low = vec![0; shape.len()];
        low[dim] = -distance(start);
        Self { low, shape: shape.with(dim, length), fill: 0.0 }
    }
}

/// Returns a number of elements along a dim, signed.
fn distance(n_elements: usize) -> i32 {
    i32::try_from(n_elements).expect("extents are far below 2^31")
}

impl Rules for Pad {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let from = &operands[0];
        let mut factors = Vec::new();
        let (mut operand, mut result) = (Vec::new(), Vec::new());
        for (dim, (&before, &after)) in from.iter().zip(&self.shape[..]).enumerate() {
            let (part, low) = (usize::min(before, after), self.low[dim].unsigned_abs() as usize);
            let is_part = match before == after {
                true => low == 0,
                false => {
                    part > 1 && before.max(after).is_multiple_of(part) && low.is_multiple_of(part)
                }
            };
            let dim = |extent: usize| match is_part {
                true => Dim::of_parts(extent, factor_id(factors.len())),
                false => Dim::new(extent, None),
            };
            operand.push(dim(before));
            result.push(dim(after));
            factors.extend(is_part.then_some(part));
        }
        let signature = Signature::new(factors, vec![operand], result, Combine::Sum);
        if self.fill == 0.0 { signature.additive() } else { signature }
    }

    // d pad(x) = pad back, with zeros where the window left elements out
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let shape = builder.shape(call.operands[0]);
        let back = Self { low: self.low.iter().map(|it| -it).collect(), shape, fill: 0.0 };
        vec![Some(builder.add(back.into(), &[call.gradient]))]
    }

    fn keeps_zeros(&self) -> bool {
        self.fill == 0.0
    }

    fn resized(&self, _factors: &[usize], result: Shape) -> Option<Operator> {
        Some(Self { shape: result, ..self.clone() }.into())
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        let low =
            ImageLayout::ChannelsLast.order(self.low.len()).into_iter().map(|dim| self.low[dim]);
        let (low, shape) = (low.collect(), ChannelsLast::shape(&self.shape));
        Some(ChannelsLast::everywhere(Self { low, shape, ..self.clone() }.into(), 1))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        // If the parts of a dim are split, the distance to one of them is split with them.
        let mut low = [0; MAX_RANK];
        for (dim, low) in low[..self.low.len()].iter_mut().enumerate() {
            *low = self.low[dim] / distance(self.shape[dim] / result[dim]);
        }
        Some(Padding { input: operands[0], result: *result, low, fill: self.fill }.into())
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        operands[0]
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pad {:?}", self.low)
    }
}
