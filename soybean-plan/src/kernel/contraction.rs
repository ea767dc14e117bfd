//! Batched matrix products.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, Shape, Strides, WorkKind, descriptor::descriptor};

descriptor! {
    /// Batched matrix product: `result[b, i, j] = sum over k of left[b, i, k] * right[b, k, j]`.
    ///
    /// Reads the left and the right operand. Products are added up in `f32`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Contraction {
        /// The extents of the batch dims; empty for a plain product.
        pub batch: Shape,
        /// The extent of `i`.
        pub rows: usize,
        /// The extent of `j`.
        pub columns: usize,
        /// The extent of `k`.
        pub depth: usize,
        /// The strides of the left operand: rows are `i`, columns are `k`.
        pub left: MatrixStrides,
        /// The strides of the right operand: rows are `k`, columns are `j`.
        pub right: MatrixStrides,
        /// The strides of the result: rows are `i`, columns are `j`.
        pub result: MatrixStrides,
    }
}

descriptor! {
    /// The strides of a batch of matrices in a buffer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MatrixStrides {
        /// The strides of the batch dims.
        pub batch: Strides,
        /// The stride from row to row.
        pub row: usize,
        /// The stride from column to column.
        pub column: usize,
    }
}

impl MatrixStrides {
    fn offset(&self, batch: &[usize], row: usize, column: usize) -> usize {
        self.batch.offset(batch) + row * self.row + column * self.column
    }
}

impl KernelDescriptor for Contraction {
    fn name(&self) -> &'static str {
        "contraction"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Contraction
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Product
    }

    fn n_operations(&self) -> u64 {
        let n_results = self.batch.n_elements() as u64 * (self.rows * self.columns) as u64;
        n_results.saturating_mul(2 * self.depth as u64)
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let mut results = vec![0.0; self.batch.n_elements() * self.rows * self.columns];
        for batch in self.batch.points() {
            for point in Shape::new(&[self.rows, self.columns, self.depth]).points() {
                let (i, j, k) = (point[0], point[1], point[2]);
                results[self.result.offset(&batch, i, j)] += inputs[0]
                    [self.left.offset(&batch, i, k)]
                    * inputs[1][self.right.offset(&batch, k, j)];
            }
        }
        vec![results]
    }
}

impl fmt::Display for Contraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("contract ")?;
        if !self.batch.is_empty() {
            write!(f, "{} ", self.batch)?;
        }
        write!(f, "{}x{}x{}", self.rows, self.depth, self.columns)
    }
}
