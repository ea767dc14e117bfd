//! Translation of row-major products to cuBLASLt, whose matrices are column-major.
//!
//! A row-major matrix is the transpose of a column-major one. A row-major result is therefore
//! computed as `result^T = right^T left^T`: the operands are swapped and not copied. A vector along
//! the result's columns becomes one along the rows of cuBLASLt's result, which is how cuBLASLt adds
//! a bias.

use soybean_plan::{Contraction, MatrixStrides};

/// Maximum number of calls for a product whose batch has no single stride.
const MAX_CALLS: usize = 64;

/// A product of column-major matrices, in one or several calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatmulLayout {
    /// Order of the operands.
    pub(super) order: OperandOrder,
    /// Operands as stored, before they are transposed.
    pub(super) operands: [StoredMatrix; 2],
    /// Result.
    pub(super) result: StoredMatrix,
    /// Matrices per call.
    pub(super) n_batch: usize,
    /// Offsets of left, right and result for each call, in elements.
    pub(super) calls: Vec<[usize; 3]>,
}

/// Order of cuBLASLt's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandOrder {
    /// `result^T = right^T left^T`
    RightLeft,
    /// `result = left right`
    LeftRight,
}

impl OperandOrder {
    /// Returns what belongs to cuBLASLt's first and second operand.
    pub(super) fn first_and_second<T>(self, left: T, right: T) -> [T; 2] {
        match self {
            Self::RightLeft => [right, left],
            Self::LeftRight => [left, right],
        }
    }
}

/// A batch of column-major matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredMatrix {
    /// True if the product uses the transpose.
    pub(super) is_transposed: bool,
    /// Rows as stored.
    pub(super) rows: usize,
    /// Columns as stored.
    pub(super) columns: usize,
    /// Leading dimension: the distance between columns in elements.
    pub(super) leading: usize,
    /// Distance between matrices in elements.
    pub(super) batch: usize,
}

/// Returns all ways in which cuBLASLt can compute the product, the best first. Empty if some matrix
/// has no contiguous dimension.
pub(super) fn candidate_layouts(contraction: &Contraction) -> Vec<MatmulLayout> {
    let Some(Batch { n_matrices, strides, calls }) = batch(contraction) else { return Vec::new() };
    let [left_batch, right_batch, result_batch] = strides;
    let Contraction { rows, columns, depth, left, right, result, .. } = contraction;
    if [*rows, *columns, *depth, n_matrices].contains(&0) {
        return Vec::new();
    }
    let stored = |result: Option<StoredMatrix>| result.filter(|it| !it.is_transposed);
    let by_columns = || {
        let result = stored(store(*columns, *rows, transposed(result), result_batch))?;
        let right = store(*columns, *depth, transposed(right), right_batch)?;
        let left = store(*depth, *rows, transposed(left), left_batch)?;
        let (order, operands, calls) = (OperandOrder::RightLeft, [right, left], calls.clone());
        Some(MatmulLayout { order, operands, result, n_batch: n_matrices, calls })
    };
    let by_rows = || {
        let result = stored(store(*rows, *columns, *result, result_batch))?;
        let left = store(*rows, *depth, *left, left_batch)?;
        let right = store(*depth, *columns, *right, right_batch)?;
        let (order, operands, calls) = (OperandOrder::LeftRight, [left, right], calls.clone());
        Some(MatmulLayout { order, operands, result, n_batch: n_matrices, calls })
    };
    by_columns().into_iter().chain(by_rows()).collect()
}

/// Returns the strides of the transpose.
fn transposed(strides: &MatrixStrides) -> MatrixStrides {
    MatrixStrides { row: strides.column, column: strides.row, batch: strides.batch }
}

/// Returns how a matrix is stored, if its rows or columns are contiguous and its elements are
/// distinct.
fn store(
    rows: usize,
    columns: usize,
    strides: MatrixStrides,
    batch: usize,
) -> Option<StoredMatrix> {
    let column_major = |rows: usize, columns: usize, row: usize, column: usize| {
        let leading = if columns == 1 { rows } else { column };
        ((rows == 1 || row == 1) && leading >= rows).then_some(leading)
    };
    if let Some(leading) = column_major(rows, columns, strides.row, strides.column) {
        return Some(StoredMatrix { is_transposed: false, rows, columns, leading, batch });
    }
    let leading = column_major(columns, rows, strides.column, strides.row)?;
    Some(StoredMatrix { is_transposed: true, rows: columns, columns: rows, leading, batch })
}

/// The batch dims as strided calls.
struct Batch {
    /// Matrices per call.
    n_matrices: usize,
    /// Distances between matrices of left, right and result, in elements.
    strides: [usize; 3],
    /// Offsets of left, right and result for each call, in elements.
    calls: Vec<[usize; 3]>,
}

/// Returns the batch dims as one stride and a few calls, or `None` if there would be too many
/// calls.
fn batch(contraction: &Contraction) -> Option<Batch> {
    let Contraction { batch, left, right, result, .. } = contraction;
    let of = |dim: usize| [left.batch.0[dim], right.batch.0[dim], result.batch.0[dim]];
    let dims = batch.iter().enumerate().map(|(dim, &extent)| (extent, of(dim)));
    let mut dims: Vec<(usize, [usize; 3])> = dims.filter(|(extent, _)| *extent != 1).collect();
    dims.sort_by_key(|(_, [.., result])| std::cmp::Reverse(*result));
    let mut merged: Vec<(usize, [usize; 3])> = Vec::new();
    for (extent, strides) in dims {
        match merged.last_mut() {
            // The outer dim continues the inner one.
            Some((outer, wide)) if *wide == strides.map(|it| it * extent) => {
                (*outer, *wide) = (*outer * extent, strides);
            }
            _ => merged.push((extent, strides)),
        }
    }
    let widest = (0..merged.len()).max_by_key(|&dim| merged[dim].0);
    let (n_matrices, strides) = widest.map_or((1, [0; 3]), |dim| merged.remove(dim));
    let n_calls: usize = merged.iter().map(|(extent, _)| extent).product();
    if n_calls > MAX_CALLS {
        return None;
    }
    let mut calls = vec![[0; 3]];
    for (extent, [left, right, result]) in merged {
        let along = |at: usize| {
            move |it: [usize; 3]| [it[0] + at * left, it[1] + at * right, it[2] + at * result]
        };
        calls = calls.iter().flat_map(|&it| (0..extent).map(move |at| along(at)(it))).collect();
    }
    Some(Batch { n_matrices, strides, calls })
}

#[cfg(test)]
mod tests {
    use soybean_plan::{Shape, Strides};

    use super::*;

    fn matrix(row: usize, column: usize, batch: &[usize]) -> MatrixStrides {
        MatrixStrides { batch: Strides::new(batch), row, column }
    }

    fn plain(left: MatrixStrides, right: MatrixStrides, result: MatrixStrides) -> Contraction {
        Contraction { batch: Shape::new(&[]), rows: 2, columns: 3, depth: 4, left, right, result }
    }

    /// Returns the sums that the layout describes, over operands whose elements are their own
    /// offsets.
    fn computed(layout: &MatmulLayout) -> Vec<(usize, u64)> {
        let at = |stored: &StoredMatrix, row: usize, column: usize, number: usize| {
            let (row, column) = if stored.is_transposed { (column, row) } else { (row, column) };
            assert!(row < stored.rows && column < stored.columns && stored.leading >= stored.rows);
            row + column * stored.leading + number * stored.batch
        };
        let MatmulLayout { order, operands: [first, second], result, n_batch, calls } = layout;
        let depth = if first.is_transposed { first.rows } else { first.columns };
        let mut sums = Vec::new();
        for [left, right, base] in calls {
            let (one, other) = match order {
                OperandOrder::RightLeft => (right, left),
                OperandOrder::LeftRight => (left, right),
            };
            for number in 0..*n_batch {
                for row in 0..result.rows {
                    for column in 0..result.columns {
                        let sum = (0..depth).map(|inner| {
                            let places = (
                                one + at(first, row, inner, number),
                                other + at(second, inner, column, number),
                            );
                            let (left, right) = match order {
                                OperandOrder::RightLeft => (places.1, places.0),
                                OperandOrder::LeftRight => places,
                            };
                            value(left, right)
                        });
                        sums.push((
                            base + at(result, row, column, number),
                            sum.fold(0, u64::wrapping_add),
                        ));
                    }
                }
            }
        }
        sums.sort_unstable();
        sums
    }

    /// Returns a number for the product of the left element at one offset and the right element at
    /// another.
    fn value(left: usize, right: usize) -> u64 {
        soybean_plan::random::mixed((left as u64) << 32 | right as u64)
    }

    fn expected(contraction: &Contraction) -> Vec<(usize, u64)> {
        let Contraction { batch, rows, columns, depth, left, right, result } = contraction;
        let mut sums = Vec::new();
        for number in 0..batch.n_elements() {
            let mut rest = number;
            let mut starts = [0; 3];
            for dim in (0..batch.len()).rev() {
                let at = rest % batch[dim];
                rest /= batch[dim];
                for (start, it) in starts.iter_mut().zip([left, right, result]) {
                    *start += at * it.batch.0[dim];
                }
            }
            for i in 0..*rows {
                for j in 0..*columns {
                    let sum = (0..*depth).map(|k| {
                        value(
                            starts[0] + i * left.row + k * left.column,
                            starts[1] + k * right.row + j * right.column,
                        )
                    });
                    sums.push((
                        starts[2] + i * result.row + j * result.column,
                        sum.fold(0, u64::wrapping_add),
                    ));
                }
            }
        }
        sums.sort_unstable();
        sums
    }

    fn check(contraction: &Contraction, orders: &[OperandOrder], n_calls: usize) {
        let all = candidate_layouts(contraction);
        assert_eq!(all.iter().map(|it| it.order).collect::<Vec<_>>(), orders);
        for layout in all {
            assert_eq!(layout.calls.len(), n_calls);
            assert_eq!(computed(&layout), expected(contraction), "{layout:?}");
        }
    }

    #[test]
    fn all_orders_of_dims_are_the_same_product() {
        let orders = [(4, 1), (1, 2), (7, 1), (1, 5)];
        for left in orders {
            for right in [(3, 1), (1, 4), (6, 1), (1, 9)] {
                for (result, order) in
                    [((3, 1), OperandOrder::RightLeft), ((1, 2), OperandOrder::LeftRight)]
                {
                    let contraction = plain(
                        matrix(left.0, left.1, &[]),
                        matrix(right.0, right.1, &[]),
                        matrix(result.0, result.1, &[]),
                    );
                    check(&contraction, &[order], 1);
                }
            }
        }
    }

    #[test]
    fn vectors_match_both_orders() {
        let mut row = plain(matrix(1, 1, &[]), matrix(3, 1, &[]), matrix(1, 1, &[]));
        row.rows = 1;
        check(&row, &[OperandOrder::RightLeft, OperandOrder::LeftRight], 1);
        let mut spaced = plain(matrix(4, 1, &[]), matrix(5, 1, &[]), matrix(5, 1, &[]));
        spaced.columns = 1;
        check(&spaced, &[OperandOrder::RightLeft], 1);
    }

    #[test]
    fn matrices_without_a_contiguous_dim_are_unsupported() {
        check(&plain(matrix(8, 2, &[]), matrix(3, 1, &[]), matrix(3, 1, &[])), &[], 1);
        check(&plain(matrix(4, 1, &[]), matrix(0, 1, &[]), matrix(3, 1, &[])), &[], 1);
        check(&plain(matrix(4, 1, &[]), matrix(3, 1, &[]), matrix(6, 2, &[])), &[], 1);
    }

    #[test]
    fn batch_dims_become_one_stride_or_a_few_calls() {
        let batched = |extents: &[usize], left: &[usize], right: &[usize], result: &[usize]| {
            let (left, right) = (matrix(4, 1, left), matrix(3, 1, right));
            let result = matrix(3, 1, result);
            Contraction { batch: Shape::new(extents), ..plain(left, right, result) }
        };
        check(&batched(&[5, 2], &[16, 8], &[24, 12], &[12, 6]), &[OperandOrder::RightLeft], 1);
        check(&batched(&[5, 1], &[8, 0], &[0, 0], &[6, 0]), &[OperandOrder::RightLeft], 1);
        check(&batched(&[2, 5], &[40, 8], &[0, 12], &[30, 6]), &[OperandOrder::RightLeft], 2);
        check(
            &batched(&[2, 3, 5], &[8, 16, 48], &[12, 0, 24], &[90, 30, 6]),
            &[OperandOrder::RightLeft],
            6,
        );
        check(&batched(&[65, 66], &[528, 8], &[0, 12], &[396, 6]), &[], 0);
    }

    #[test]
    fn empty_products_are_unsupported() {
        let mut contraction = plain(matrix(4, 1, &[]), matrix(3, 1, &[]), matrix(3, 1, &[]));
        contraction.depth = 0;
        assert_eq!(candidate_layouts(&contraction), []);
    }
}
