//! `iota`: the vector `0, 1, 2, ..`, which gives a kernel the global index of its elements along a
//! dim in any tiling.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{Dim, Signature},
    value::Value,
};

/// The vector of the indices below `extent`, as `i32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iota {
    /// The number of elements.
    pub extent: usize,
    /// True if kernels only compare it with the extent of a padded dim.
    pub is_for_padding: bool,
}

impl Iota {
    /// Returns the indices of a dim that the user's model reads.
    #[must_use]
    pub fn new(extent: usize) -> Self {
        Self { extent, is_for_padding: false }
    }
}

impl Rules for Iota {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        // No factor: every rank knows all indices, and a part of them costs nothing.
        let result = vec![Dim::new(self.extent, None)];
        Signature::new(Vec::new(), Vec::new(), result, Combine::Sum)
    }

    fn gradient(
        &self,
        _call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        Vec::new()
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn kernel(&self, _operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        None
    }

    fn dtype(&self, _operands: &[DType]) -> DType {
        DType::I32
    }

    fn is_constant(&self) -> bool {
        true
    }
}

impl fmt::Display for Iota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("iota")
    }
}
