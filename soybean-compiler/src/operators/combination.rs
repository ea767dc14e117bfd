//! `combine`: a linear combination of tensors that may be partial sums, such as `a x - b y`. Ranks
//! combine their own terms first, and reduce one tensor instead of one for each operand.
//!
//! It computes what a map does, but fusion does not move it into its readers. A plain sum is an
//! `add`.

use std::fmt;

use soybean_plan::{Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    operators::elementwise::Elementwise,
    signature::Signature,
    value::Value,
};

/// A combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// The map that computes it. Its program is linear in the terms together.
    pub map: Elementwise,
    /// The number of tensors that are combined. They are the first operands; the others scale them.
    pub n_terms: usize,
}

impl Rules for Combination {
    fn signature(&self, operands: &[Shape]) -> Signature {
        self.map.signature(operands).linear_in(vec![(0..self.n_terms).collect()])
    }

    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        self.map.gradient(call, builder)
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        let map = Elementwise { extents: Shape::new(factors), ..self.map.clone() };
        Some(Self { map, ..self.clone() }.into())
    }

    fn flops_per_point(&self) -> u64 {
        self.map.flops_per_point()
    }

    fn rounding(&self) -> Rounding {
        Rounding::Map
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        let operator = Self { map: self.map.with_channels_last()?, ..self.clone() }.into();
        Some(ChannelsLast { operator, operands: self.map.read_channels_last(), result: true })
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        self.map.kernel(operands, result)
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "combine {{{}}}", self.map.program)
    }
}
