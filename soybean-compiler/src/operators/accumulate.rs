//! `accumulate`: the sum of a gradient and those of earlier steps. Both may be partial sums, so
//! that ranks add up their own terms and exchange nothing.
//!
//! It computes what `add` does, but is an operator of its own: what an accumulating step keeps is
//! stored as the state that it replaces, while the total that an update reads, `accumulated`, has a
//! tiling for its readers.

use std::fmt;

use soybean_plan::{Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Rounding, Rules},
    operators::{addition::Addition, elementwise::Elementwise},
    scalar::ScalarBuilder,
    signature::Signature,
    value::Value,
};

/// The sum of a state and a gradient of its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// What an accumulating step keeps.
    Kept,
    /// What an update reads: the state alone in an update without a batch.
    Total {
        /// The number of [`soybean_plan::RunScalar::HasBatch`] among the scalars of programs.
        has_batch: u8,
    },
}

const SUM: Addition = Addition { n_terms: 2 };

impl Accumulate {
    /// Returns the same sum as a map over tensors of this shape.
    pub(crate) fn as_map(&self, shape: Shape) -> Elementwise {
        let &Self::Total { has_batch } = self else { return SUM.as_map(shape) };
        let mut it = ScalarBuilder::default();
        let (state, gradient, zero) = (it.input(0), it.input(1), it.constant(0.0));
        let has_batch = it.scalar(has_batch);
        let term = it.select(has_batch, gradient, zero);
        let sum = it.add(state, term);
        Elementwise::same(shape, 2, it.finish(sum))
    }

    /// Returns whether an update reads the sum.
    pub(crate) const fn is_total(&self) -> bool {
        matches!(self, Self::Total { .. })
    }
}

impl Rules for Accumulate {
    fn signature(&self, operands: &[Shape]) -> Signature {
        SUM.signature(operands)
    }

    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        SUM.gradient(call, builder)
    }

    fn keeps_zeros(&self) -> bool {
        SUM.keeps_zeros()
    }

    fn flops_per_point(&self) -> u64 {
        SUM.flops_per_point()
    }

    fn rounding(&self) -> Rounding {
        SUM.rounding()
    }

    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        Some(ChannelsLast::everywhere(self.clone().into(), operands.len()))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        Some(self.as_map(*result).local(operands, *result).into())
    }
}

impl fmt::Display for Accumulate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_total() { "accumulated" } else { "accumulate" })
    }
}
