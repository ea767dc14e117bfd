//! Updates of the rows of an embedding table that a batch looked up.

use std::fmt;

use super::KernelDescriptor;
use crate::{Embedding, EmbeddingForm, KernelCategory, Map, WorkKind, descriptor::descriptor};

descriptor! {
    /// Update of an embedding table and its optimizer's states, in place, at the rows of some
    /// indices alone.
    ///
    /// Reads what the gradient of an [`Embedding`] reads: indices, the gradients of the gathered
    /// rows, and the global numbers of the rank's rows. Then it reads the other inputs of the map.
    /// Results are written where their values before are: in the buffers of the first of these
    /// inputs, in order.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EmbeddingUpdate {
        /// The number of indices.
        pub n_indices: usize,
        /// The rows of the whole table.
        pub vocabulary: usize,
        /// The update of all rows and columns that the rank holds, `[rows, width]`. Its first input
        /// is the gradient of the table, which is dense. The others are dense or one number.
        pub map: Map,
    }
}

impl EmbeddingUpdate {
    /// The inputs before those of the map.
    pub const N_OWN_INPUTS: usize = 3;

    /// Returns the kernel that would compute the gradient of the table.
    #[must_use]
    pub fn gradient(&self) -> Embedding {
        let (n_indices, vocabulary) = (self.n_indices, self.vocabulary);
        let [rows, width] = [self.map.extents[0], self.map.extents[1]];
        Embedding { form: EmbeddingForm::ScatterAdd, n_indices, rows, vocabulary, width }
    }

    /// Returns the number of the kernel's input that is this input of the map; the first input of
    /// the map is none.
    #[must_use]
    pub const fn input(&self, of_map: usize) -> usize {
        Self::N_OWN_INPUTS + of_map - 1
    }

    /// Returns the most rows that are updated.
    #[must_use]
    pub fn most_rows(&self) -> usize {
        self.n_indices.min(self.map.extents[0])
    }

    /// Returns the number of tables that are read and of those that are written.
    fn n_tables(&self) -> usize {
        let dense = self.map.extents.dense_strides();
        let n_read = self.map.inputs[1..].iter().filter(|it| **it == dense).count();
        n_read + self.map.program.results.len()
    }
}

impl KernelDescriptor for EmbeddingUpdate {
    fn name(&self) -> &'static str {
        "embedding-update"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Embedding
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        let n_elements = (self.most_rows() * self.map.extents[1]) as u64;
        self.gradient().n_operations() + n_elements * self.map.program.n_operations()
    }

    fn bytes_touched(&self, bytes: u64) -> u64 {
        let n_untouched = self.map.extents[0] - self.most_rows();
        let elements = n_untouched * self.map.extents[1] * self.n_tables();
        bytes.saturating_sub(4 * elements as u64)
    }

    fn evaluate(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>> {
        let (own, of_map) = inputs.split_at(Self::N_OWN_INPUTS);
        let gradient = self.gradient().evaluate(own, scalars).remove(0);
        let inputs: Vec<&[f64]> =
            [&gradient[..]].into_iter().chain(of_map.iter().copied()).collect();
        let results = self.map.evaluate(&inputs, scalars);
        let width = self.map.extents[1];
        let is_touched: Vec<bool> = own[2].iter().map(|it| own[0].contains(it)).collect();
        let rows = |(next, before): (&Vec<f64>, &&[f64])| {
            let element = |at: usize| if is_touched[at / width] { next[at] } else { before[at] };
            (0..next.len()).map(element).collect()
        };
        results.iter().zip(of_map).map(rows).collect()
    }
}

impl fmt::Display for EmbeddingUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Map { extents, program, .. } = &self.map;
        write!(f, "embedding-update {} of {extents} {{{program}}}", self.n_indices)
    }
}
