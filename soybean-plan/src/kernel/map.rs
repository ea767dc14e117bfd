//! Fused elementwise kernels.

use std::{borrow::Cow, fmt};

use super::KernelDescriptor;
use crate::{KernelCategory, ScalarProgram, Shape, Strides, WorkKind, descriptor::descriptor};

descriptor! {
    /// Fused elementwise kernel: a scalar program, applied at every point of an index space.
    ///
    /// Reads any number of tensors and writes one for each result of the program. Results are
    /// dense and row-major over the index space. They are computed in `f32` and stored as the
    /// types of their buffers. The buffer of a result may be that of a dense input.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Map {
        /// The index space.
        pub extents: Shape,
        /// The strides of each input over the index space; a stride of 0 broadcasts.
        pub inputs: Cow<'static, [Strides]>,
        /// The program that is computed at each point, with one result for each buffer written.
        pub program: ScalarProgram,
    }
}

impl Map {
    /// Returns the results of the program at each point, in double precision.
    #[must_use]
    pub fn values(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>> {
        let value = |point: &Vec<usize>| {
            let inputs = inputs.iter().zip(self.inputs.iter());
            let elements: Vec<f64> =
                inputs.map(|(input, strides)| input[strides.offset(point)]).collect();
            self.program.evaluate(&elements, scalars)
        };
        self.extents.points().iter().map(value).collect()
    }
}

impl KernelDescriptor for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Map
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        self.extents.n_elements() as u64 * self.program.n_operations()
    }

    fn evaluate(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>> {
        let values = self.values(inputs, scalars);
        let result = |number: usize| values.iter().map(|it| it[number]).collect();
        (0..self.program.results.len()).map(result).collect()
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {} {{{}}}", self.extents, self.program)
    }
}
