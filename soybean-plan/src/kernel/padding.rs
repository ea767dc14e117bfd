//! Copies of windows that may reach beyond a tensor.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, MAX_RANK, Shape, WorkKind, descriptor::descriptor};

descriptor! {
    /// Copy of a window of a tensor that may reach beyond it.
    ///
    /// `result[i, j, ..] = input[i - low_0, j - low_1, ..]`, or the fill value where the input has
    /// no such element. Reads one tensor, with elements of any type, dense and row-major.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Padding {
        /// The extents of the input.
        pub input: Shape,
        /// The extents of the result.
        pub result: Shape,
        /// The elements before the first of the input along each dim; negative where the window
        /// begins inside the input.
        pub low: [i32; MAX_RANK],
        /// The value outside the input, rounded to the type of the elements.
        pub fill: f64,
    }
}

impl KernelDescriptor for Padding {
    fn name(&self) -> &'static str {
        "padding"
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
        let strides = self.input.dense_strides();
        let value = |point: &Vec<usize>| {
            let mut offset = 0;
            for (dim, &position) in point.iter().enumerate() {
                let inside = position as i64 - i64::from(self.low[dim]);
                match usize::try_from(inside).ok().filter(|it| *it < self.input[dim]) {
                    Some(inside) => offset += inside * strides.0[dim],
                    None => return self.fill,
                }
            }
            inputs[0][offset]
        };
        vec![self.result.points().iter().map(value).collect()]
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pad {} to {}", self.input, self.result)
    }
}
