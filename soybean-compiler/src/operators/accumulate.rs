//! `accumulate`: the sum of a gradient and those of earlier steps, which an accumulating step
//! keeps. Both may be partial sums, so that ranks add up their own terms and exchange nothing.
//!
//! It computes what `add` does, but is an operator of its own: its result is stored as the state
//! that it replaces, while the total that an update reads has a tiling for its readers.

use std::fmt;

use soybean_plan::{Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Rounding, Rules},
    operators::{addition::Addition, elementwise::Elementwise},
    signature::Signature,
    value::Value,
};

/// The sum of a state and a gradient of its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accumulate;

impl Accumulate {
    const SUM: Addition = Addition { n_terms: 2 };

    /// Returns the same sum as a map over tensors of this shape.
    pub(crate) fn as_map(shape: Shape) -> Elementwise {
        Self::SUM.as_map(shape)
    }
}

impl Rules for Accumulate {
    fn signature(&self, operands: &[Shape]) -> Signature {
        Self::SUM.signature(operands)
    }

    // d (x + y) = dx + dy
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![Some(call.gradient); 2]
    }

    fn keeps_zeros(&self) -> bool {
        true
    }

    fn flops_per_point(&self) -> u64 {
        Self::SUM.flops_per_point()
    }

    fn rounding(&self) -> Rounding {
        Rounding::Map
    }

    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        Some(ChannelsLast::everywhere(self.clone().into(), operands.len()))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        Self::SUM.kernel(operands, result)
    }
}

impl fmt::Display for Accumulate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("accumulate")
    }
}
