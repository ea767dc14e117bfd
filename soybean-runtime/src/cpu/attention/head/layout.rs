//! The places of heads and rows in memory.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{Attention, AttentionLayout};

use crate::cpu::{product::Matrix, region::Region};

/// The elements between the first rows of neighboring heads of queries.
pub(super) struct Distances {
    pub(super) queries: usize,
    /// Of the gradients of results.
    pub(super) gradients: usize,
    /// Of the gradients of queries.
    pub(super) results: usize,
}

impl Distances {
    pub(super) fn new(attention: &Attention) -> Self {
        let Attention { queries, features, width, layout, .. } = *attention;
        // Neighbors alternate, or one follows another.
        let distance = |alternating: usize, columns: usize| match alternating {
            1 => queries * columns,
            _ => columns,
        };
        Self {
            queries: distance(layout.operands[0], features),
            gradients: distance(layout.operands[3], width),
            results: distance(layout.results[0], features),
        }
    }
}

/// Returns a head of a tensor, in which the rows of this many heads alternate.
pub(in crate::cpu::attention) const fn matrix(
    tensor: Region,
    alternating: usize,
    (head, n_rows): (usize, usize),
    width: usize,
) -> Matrix {
    let first = AttentionLayout::first_row(alternating, head, n_rows);
    Matrix { start: tensor.at(first * width), row: alternating * width, column: 1 }
}

/// Sets rows of this length to 0.
///
/// # Safety
/// The matrix has this many rows and columns.
pub(super) unsafe fn clear(matrix: Matrix, n_rows: usize, columns: usize) {
    // Dense rows are as good as one.
    let (n_rows, columns) =
        if matrix.row == columns { (1, n_rows * columns) } else { (n_rows, columns) };
    for row in 0..n_rows {
        // SAFETY: required of the caller.
        unsafe { matrix.from(row, 0).start.write_bytes(0, columns) };
    }
}
