//! `rank`: the place of each element in the order of those along a dim.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Ranking, RankingForm, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// The places along a dim, counted from 0, as `i32`. Of equal elements the first comes first. Every
/// dim but this one can be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The order.
    pub form: RankingForm,
    /// The dim.
    pub dim: usize,
}

impl Rules for Rank {
    // A place depends on all elements of the line: for dim 1 of 2, i_->i_.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let mut factors = Vec::new();
        let mut dims = Vec::new();
        for (dim, &extent) in operands[0].iter().enumerate() {
            let factor = (dim != self.dim).then(|| factor_id(factors.len()));
            factors.extend(factor.map(|_| extent));
            dims.push(Dim::new(extent, factor));
        }
        Signature::new(factors, vec![dims.clone()], dims, Combine::Sum)
    }

    // Places are integers.
    fn gradient(
        &self,
        _call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![None]
    }

    // About the comparisons of a sort, for each line.
    fn flops_per_point(&self) -> u64 {
        1
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn kernel(&self, operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        let shape = &operands[0];
        let kernel = Ranking {
            form: self.form,
            outer: shape[..self.dim].iter().product(),
            length: shape[self.dim],
            inner: shape[self.dim + 1..].iter().product(),
        };
        Some(kernel.into())
    }

    fn dtype(&self, _operands: &[DType]) -> DType {
        DType::I32
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.form.name(), self.dim)
    }
}
