//! Lookups in embedding tables.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, WorkKind, descriptor::descriptor};

descriptor! {
    /// Lookup of rows of a table by index, or the gradient of the table.
    ///
    /// Reads indices, then the table or the gradient of the gathered rows, then the global numbers
    /// of the rank's rows. A rank may hold only some rows: the third input, `[rows]` as `i32`, has
    /// the global number of each. Indices are `[n_indices]` as `i32`; indices of rows on other
    /// ranks give zeros and add nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Embedding {
        /// The computation.
        pub form: EmbeddingForm,
        /// The number of indices.
        pub n_indices: usize,
        /// The rows of the table that the rank holds.
        pub rows: usize,
        /// The rows of the whole table.
        pub vocabulary: usize,
        /// The elements of a row.
        pub width: usize,
    }
}

descriptor! {
    /// The computation of an [`Embedding`].
    pub enum EmbeddingForm {
        /// `[n_indices, width]` from the table `[rows, width]`.
        Gather = "gather",
        /// The gradient of the table, `[rows, width]`, from that of the gathered rows
        /// `[n_indices, width]`: sums in the order of the indices.
        ScatterAdd = "scatter-add",
    }
}

impl KernelDescriptor for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Embedding
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    fn n_operations(&self) -> u64 {
        match self.form {
            EmbeddingForm::Gather => 0,
            EmbeddingForm::ScatterAdd => (self.n_indices * self.width) as u64,
        }
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let (indices, rows, numbers) = (inputs[0], inputs[1], inputs[2]);
        let n_rows = match self.form {
            EmbeddingForm::Gather => self.n_indices,
            EmbeddingForm::ScatterAdd => self.rows,
        };
        let mut result = vec![0.0; n_rows * self.width];
        for (at, index) in indices.iter().enumerate() {
            let Some(row) = numbers.iter().position(|number| number == index) else { continue };
            for column in 0..self.width {
                let (gathered, stored) = (at * self.width + column, row * self.width + column);
                match self.form {
                    EmbeddingForm::Gather => result[gathered] = rows[stored],
                    EmbeddingForm::ScatterAdd => result[stored] += rows[gathered],
                }
            }
        }
        vec![result]
    }
}

impl fmt::Display for Embedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}x{}", self.form.name(), self.n_indices, self.rows, self.width)
    }
}
