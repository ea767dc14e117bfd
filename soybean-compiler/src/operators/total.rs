//! `total`: the sum of numbers that may be partial sums. Ranks add up their parts, and exchange one
//! number instead of one for each term.

use std::fmt;

use soybean_plan::{Combine, Kernel, Placement, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    operators::addition::Addition,
    signature::Signature,
    value::Value,
};

/// A sum of so many numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Total {
    /// The number of terms.
    pub n_terms: usize,
}

impl Rules for Total {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        let number: Vec<Vec<_>> = vec![Vec::new(); self.n_terms];
        Signature {
            idle: Placement::Partial,
            ..Signature::plain(Vec::new(), &number, &[], Combine::Sum)
        }
    }

    // d (x + y + ..) = dx + dy + ..
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![Some(call.gradient); self.n_terms]
    }

    fn flops_per_point(&self) -> u64 {
        self.n_terms.saturating_sub(1) as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let map = Addition { n_terms: self.n_terms }.as_map(*result);
        Some(map.local(operands, *result).into())
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("total")
    }
}
