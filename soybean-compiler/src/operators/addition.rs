//! `add`: the sum of tensors that may be partial sums. Ranks add up their own terms first, and
//! reduce one tensor instead of one for each operand.
//!
//! Other sums are maps, which fusion moves into their readers.

use std::fmt;

use soybean_plan::{Combine, Kernel, ScalarProgram, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Rounding, Rules},
    operators::elementwise::{Elementwise, all_dims},
    scalar::ScalarBuilder,
    signature::{Signature, factor_id},
    value::Value,
};

/// A sum of so many tensors of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The number of terms.
    pub n_terms: usize,
}

impl Addition {
    /// Returns the same sum as a map over tensors of this shape.
    #[must_use]
    pub fn as_map(&self, shape: Shape) -> Elementwise {
        Elementwise::same(shape, self.n_terms, sum(self.n_terms))
    }
}

impl Rules for Addition {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims = all_dims(&operands[0]);
        let all = vec![dims.clone(); self.n_terms];
        Signature::plain(operands[0].to_vec(), &all, &dims, Combine::Sum).additive()
    }

    // d (x + y + ..) = dx + dy + ..
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![Some(call.gradient); self.n_terms]
    }

    fn keeps_zeros(&self) -> bool {
        true
    }

    fn flops_per_point(&self) -> u64 {
        self.n_terms.saturating_sub(1) as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Map
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        Some(ChannelsLast::everywhere(self.clone().into(), self.n_terms))
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        Some(self.as_map(*result).local(operands, *result).into())
    }
}

/// Returns the program that adds up its inputs, one after another.
pub(crate) fn sum(n_terms: usize) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let first = it.input(0);
    let sum = (1..n_terms).fold(first, |sum, term| {
        let term = it.input(factor_id(term));
        it.add(sum, term)
    });
    it.finish(sum)
}

impl fmt::Display for Addition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("add")
    }
}
