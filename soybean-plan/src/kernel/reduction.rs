//! Fused reductions.

use std::fmt;

use super::{KernelDescriptor, Map};
use crate::{Combine, KernelCategory, Strides, WorkKind, descriptor::descriptor};

descriptor! {
    /// Fused reduction: a map with one result, whose values are combined along some dims.
    ///
    /// Reads any number of tensors. Integers are combined as integers.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Reduction {
        /// The map; its program has one result.
        pub map: Map,
        /// The function that combines values.
        pub combine: Combine,
        /// The strides of the result over the index space: 0 along dims that are reduced.
        pub result: Strides,
    }
}

impl Reduction {
    /// Returns whether the combined values and the result are integers.
    #[must_use]
    pub fn combines_integers(&self) -> bool {
        self.map.program.integer_results()[0]
    }
}

impl KernelDescriptor for Reduction {
    fn name(&self) -> &'static str {
        "reduction"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Reduction
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        self.map.n_operations() + self.map.extents.n_elements() as u64
    }

    fn evaluate(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>> {
        let dims = self.map.extents.iter().zip(self.result.0);
        let n_results = dims.filter(|(_, stride)| *stride != 0).map(|(extent, _)| extent).product();
        let is_integer = self.combines_integers();
        let identity = match is_integer {
            true => self.combine.integer_identity().into(),
            false => self.combine.identity(),
        };
        let combined = |x: f64, y: f64| match is_integer {
            #[expect(clippy::cast_possible_truncation, reason = "both are integers of 32 bits")]
            true => self.combine.evaluate_integers(x as i32, y as i32).into(),
            false => self.combine.evaluate(x, y),
        };
        let mut results = vec![identity; n_results];
        let values = self.map.values(inputs, scalars);
        for (point, value) in self.map.extents.points().iter().zip(values) {
            let result = &mut results[self.result.offset(point)];
            *result = combined(*result, value[0]);
        }
        vec![results]
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {{{}}}", self.combine.name(), self.map.extents, self.map.program)
    }
}
