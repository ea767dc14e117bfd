//! Copies with another order of dims.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, Shape, Strides, WorkKind, descriptor::descriptor};

descriptor! {
    /// Copy into a dense row-major result: `result[i, j, ..] = input[i * s_0 + j * s_1 + ..]`.
    ///
    /// Reads one tensor, with elements of any type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permutation {
        /// The extents of the result.
        pub extents: Shape,
        /// The strides of the input over the dims of the result.
        pub input: Strides,
    }
}

impl KernelDescriptor for Permutation {
    fn name(&self) -> &'static str {
        "permutation"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Permutation
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        0
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let points = self.extents.points();
        vec![points.iter().map(|point| inputs[0][self.input.offset(point)]).collect()]
    }
}

impl fmt::Display for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permute {}", self.extents)
    }
}
