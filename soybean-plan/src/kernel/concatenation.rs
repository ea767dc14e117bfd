//! Concatenation of tensors.

use std::{borrow::Cow, fmt};

use super::KernelDescriptor;
use crate::{KernelCategory, WorkKind, descriptor::descriptor};

descriptor! {
    /// Concatenation of tensors along a dim.
    ///
    /// Reads one tensor for each part, with elements of any type, dense and row-major. The dims
    /// from that dim on are merged: part `p` is `[outer, lengths[p]]`, and the result is
    /// `[outer, sum of lengths]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Concatenation {
        /// The product of the extents before the dim.
        pub outer: usize,
        /// The product of the extents from the dim on, for each part.
        pub lengths: Cow<'static, [usize]>,
    }
}

impl KernelDescriptor for Concatenation {
    fn name(&self) -> &'static str {
        "concatenation"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Copying
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        0
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let mut result = Vec::new();
        for outer in 0..self.outer {
            for (input, length) in inputs.iter().zip(self.lengths.iter()) {
                result.extend(&input[outer * length..(outer + 1) * length]);
            }
        }
        vec![result]
    }
}

impl fmt::Display for Concatenation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "concatenate {}x{:?}", self.outer, self.lengths)
    }
}
