//! `accumulate`: the sum of a gradient and those of earlier steps, which an accumulating step
//! keeps. Both may be partial sums, so that ranks add up their own terms and exchange nothing.
//!
//! It computes what `add` does, but is an operator of its own: its result is stored as the state
//! that it replaces, while the total that an update reads, `accumulated`, has a tiling for its
//! readers.

use std::fmt;

use soybean_plan::{Combine, Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Rounding, Rules},
    operators::{
        addition::Addition,
        elementwise::{Elementwise, all_dims},
    },
    scalar::ScalarBuilder,
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

/// The sum of a state and a gradient that an update reads: the state alone in an update without a
/// batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccumulatedTotal {
    /// The number of [`soybean_plan::RunScalar::HasBatch`] among the scalars of programs.
    pub has_batch: u8,
}

impl AccumulatedTotal {
    /// Returns the same sum as a map over tensors of this shape.
    pub(crate) fn as_map(&self, shape: Shape) -> Elementwise {
        let mut it = ScalarBuilder::default();
        let (state, gradient, zero) = (it.input(0), it.input(1), it.constant(0.0));
        let has_batch = it.scalar(self.has_batch);
        let term = it.select(has_batch, gradient, zero);
        let sum = it.add(state, term);
        Elementwise::same(shape, 2, it.finish(sum))
    }
}

impl Rules for AccumulatedTotal {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims = all_dims(&operands[0]);
        let both = vec![dims.clone(); 2];
        Signature::plain(operands[0].to_vec(), &both, &dims, Combine::Sum).additive()
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
        1
    }

    fn rounding(&self) -> Rounding {
        Rounding::Map
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        Some(ChannelsLast::everywhere(self.clone().into(), 2))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        Some(self.as_map(*result).local(operands, *result).into())
    }
}

impl fmt::Display for AccumulatedTotal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("accumulated")
    }
}
