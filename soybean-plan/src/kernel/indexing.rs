//! Elements by their indices along a dim.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, WorkKind, descriptor::descriptor};

descriptor! {
    /// Choice of one element of a line for each index, or the sums of the elements with each index.
    ///
    /// Reads indices `[outer, n_indices, inner]` as `i32`, then the lines or the elements to be
    /// summed, then the global numbers of the rank's rows, `[rows]` as `i32`: a rank may hold only
    /// some elements of each line. Indices of rows on other ranks, and of none, give zeros and add
    /// nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Indexing {
        /// The computation.
        pub form: IndexingForm,
        /// The number of planes of lines: the extents of the dims before the indexed one.
        pub outer: usize,
        /// The indices of a line.
        pub n_indices: usize,
        /// The elements of a line that the rank holds.
        pub rows: usize,
        /// The elements of a whole line.
        pub extent: usize,
        /// The number of lines side by side: the extents of the dims after the indexed one.
        pub inner: usize,
    }
}

descriptor! {
    /// The computation of an [`Indexing`]. The names are those of ONNX.
    pub enum IndexingForm {
        /// `[outer, n_indices, inner]` from the lines `[outer, rows, inner]`.
        Gather = "gather-elements",
        /// The sums `[outer, rows, inner]` of the elements `[outer, n_indices, inner]` with each
        /// index, in the order of the indices.
        ScatterAdd = "scatter-elements",
    }
}

impl KernelDescriptor for Indexing {
    fn name(&self) -> &'static str {
        "indexing"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Indexing
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        match self.form {
            IndexingForm::Gather => 0,
            IndexingForm::ScatterAdd => (self.outer * self.n_indices * self.inner) as u64,
        }
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let (indices, elements, numbers) = (inputs[0], inputs[1], inputs[2]);
        let Self { form, outer, n_indices, rows, inner, .. } = *self;
        let length = match form {
            IndexingForm::Gather => n_indices,
            IndexingForm::ScatterAdd => rows,
        };
        let mut result = vec![0.0; outer * length * inner];
        for (at, index) in indices.iter().enumerate() {
            let Some(row) = numbers.iter().position(|number| number == index) else { continue };
            let (plane, column) = (at / (n_indices * inner), at % inner);
            let stored = (plane * rows + row) * inner + column;
            match form {
                IndexingForm::Gather => result[at] = elements[stored],
                IndexingForm::ScatterAdd => result[stored] += elements[at],
            }
        }
        vec![result]
    }
}

impl fmt::Display for Indexing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, outer, n_indices, rows, inner, .. } = self;
        write!(f, "{} {n_indices} of {outer}x{rows}x{inner}", form.name())
    }
}
