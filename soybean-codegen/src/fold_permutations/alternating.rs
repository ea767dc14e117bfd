//! Permutations of heads.

use soybean_plan::Permutation;

use crate::{
    attention::MOST_ALTERNATING,
    space::{Axis, axes, joined},
};

/// The order of a permutation's result; its operand has the other one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One head after another.
    Heads,
    /// The rows of some heads alternate.
    Rows,
}

/// Returns the number of heads whose rows alternate on one side of a permutation, while on the
/// other side one head follows another. `heads` have `group` heads of queries each; a head has
/// `rows` of `columns` elements. Returns `None` if the permutation is another one.
pub(super) fn alternating(
    permutation: &Permutation,
    heads: usize,
    [group, rows, columns]: [usize; 3],
    result: Order,
) -> Option<usize> {
    let found =
        axes(&permutation.extents, &[permutation.input, permutation.extents.dense_strides()]);
    let is_such = |n: &usize| {
        // Dims: the heads outside and inside, and the rows and columns of each.
        let extents = [heads * group / n, *n, rows, columns];
        let by_heads = [n * rows * columns, rows * columns, columns, 1];
        let by_rows = [n * rows * columns, columns, n * columns, 1];
        let (order, [operand, result]) = match result {
            Order::Heads => ([0, 1, 2, 3], [by_rows, by_heads]),
            Order::Rows => ([0, 2, 1, 3], [by_heads, by_rows]),
        };
        let axis =
            |dim: usize| Axis { extent: extents[dim], strides: vec![operand[dim], result[dim]] };
        joined(order.map(axis)) == found
    };
    let whole = (1..=heads).filter(|it| heads.is_multiple_of(*it)).map(|it| it * group);
    whole.filter(|it| (2..=MOST_ALTERNATING).contains(it)).find(is_such)
}
