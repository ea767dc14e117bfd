//! Products of a matrix and few vectors, such as those of a decoder that reads one token. They take
//! the time of reading the matrix, so each element is read once, and nothing is packed.
#![expect(unsafe_code, reason = "matrices of any strides in memory that other buffers share")]

use soybean_plan::{Contraction, MatrixStrides};

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
    product::Matrix,
};

/// The most columns of such a product. With more of them, packing pays.
const MOST_COLUMNS: usize = 4;

/// Elements of a row that are multiplied at once: two vectors of the widest kind.
const LANES: usize = 32;
/// Rows that are multiplied at once: as many streams of memory.
const N_ROWS: usize = 4;
/// Levels that are added at once.
const N_LEVELS: usize = 4;

/// `result = left * right`. Sizes are rows, columns and depth.
///
/// # Safety
/// The matrices have these sizes, the columns of `right` are dense, and nothing else writes to
/// `result`.
pub(crate) type Product = unsafe fn((usize, usize, usize), Matrix, Matrix, Matrix);

/// Returns whether the product, or else its transpose, has few columns.
pub(crate) const fn is_transposed(contraction: &Contraction) -> Option<bool> {
    match (contraction.rows, contraction.columns) {
        (_, ..=MOST_COLUMNS) => Some(false),
        (..=MOST_COLUMNS, _) => Some(true),
        _ => None,
    }
}

/// Returns the loop for operands of these strides, of a product with few columns. There is none for
/// vectors that are not dense, or for a matrix of which neither the rows nor the columns are.
pub(crate) fn product(
    left: MatrixStrides,
    right: MatrixStrides,
    result: MatrixStrides,
    isa: Isa,
) -> Option<Product> {
    match (left.row, left.column, right.row, result.row) {
        (_, 1, 1, _) => Some(dense_rows(isa)),
        (1, _, 1, 1) => Some(dense_columns(isa)),
        _ => None,
    }
}

for_each_isa! {
    dense_rows [] []
    Product, dense_rows_body (sizes: (usize, usize, usize), left: Matrix, right: Matrix, result: Matrix)
}

for_each_isa! {
    dense_columns [] []
    Product, dense_columns_body (sizes: (usize, usize, usize), left: Matrix, right: Matrix, result: Matrix)
}

/// Multiplies each row with each vector.
///
/// # Safety
/// As [`Product`]; the rows of `left` are dense.
#[inline(always)]
unsafe fn dense_rows_body<M: MultiplyAdd>(
    (n_rows, n_columns, depth): (usize, usize, usize),
    left: Matrix,
    right: Matrix,
    result: Matrix,
) {
    let n_whole = n_rows / N_ROWS * N_ROWS;
    for row in (0..n_whole).step_by(N_ROWS) {
        for column in 0..n_columns {
            let (left, right) = (left.from(row, 0), right.from(0, column));
            // SAFETY: required of the caller.
            unsafe { dots::<M, N_ROWS>(depth, left, right, result.from(row, column)) };
        }
    }
    for row in n_whole..n_rows {
        for column in 0..n_columns {
            let (left, right) = (left.from(row, 0), right.from(0, column));
            // SAFETY: required of the caller.
            unsafe { dots::<M, 1>(depth, left, right, result.from(row, column)) };
        }
    }
}

/// Multiplies `N` rows with a vector.
///
/// # Safety
/// The rows and the vector have `depth` elements.
#[inline(always)]
unsafe fn dots<M: MultiplyAdd, const N: usize>(
    depth: usize,
    left: Matrix,
    right: Matrix,
    result: Matrix,
) {
    let mut sums = [[0.0; LANES]; N];
    let n_whole = depth / LANES * LANES;
    for level in (0..n_whole).step_by(LANES) {
        // SAFETY: required of the caller.
        let vector = unsafe { block(right.start.wrapping_add(level)) };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: required of the caller.
            let numbers = unsafe { block(left.from(row, level).start) };
            for lane in 0..LANES {
                sums[lane] = M::multiply_add(numbers[lane], vector[lane], sums[lane]);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        let mut sum = total(*sums);
        for level in n_whole..depth {
            // SAFETY: required of the caller.
            let number = unsafe { left.from(row, level).start.read() };
            // SAFETY: required of the caller.
            let factor = unsafe { right.start.wrapping_add(level).read() };
            sum = M::multiply_add(number, factor, sum);
        }
        // SAFETY: required of the caller.
        unsafe { result.from(row, 0).start.write(sum) };
    }
}

/// # Safety
/// There are so many elements.
#[inline(always)]
unsafe fn block(start: *const f32) -> [f32; LANES] {
    // SAFETY: required of the caller.
    unsafe { start.cast::<[f32; LANES]>().read_unaligned() }
}

/// Adds all lanes, halves to each other.
#[inline(always)]
fn total(mut sums: [f32; LANES]) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for lane in 0..n {
            sums[lane] += sums[lane + n];
        }
        n /= 2;
    }
    sums[0]
}

/// Adds the columns of `left`, each times the elements of the vectors.
///
/// # Safety
/// As [`Product`]; the columns of `left` and of `result` are dense.
#[inline(always)]
unsafe fn dense_columns_body<M: MultiplyAdd>(
    (n_rows, n_columns, depth): (usize, usize, usize),
    left: Matrix,
    right: Matrix,
    result: Matrix,
) {
    for column in 0..n_columns {
        for row in 0..n_rows {
            // SAFETY: required of the caller.
            unsafe { result.from(row, column).start.write(0.0) };
        }
    }
    let n_whole = depth / N_LEVELS * N_LEVELS;
    for level in (0..n_whole).step_by(N_LEVELS) {
        for column in 0..n_columns {
            let (left, right) = (left.from(0, level), right.from(level, column));
            // SAFETY: required of the caller.
            unsafe { add::<M, N_LEVELS>(n_rows, left, right, result.from(0, column)) };
        }
    }
    for level in n_whole..depth {
        for column in 0..n_columns {
            let (left, right) = (left.from(0, level), right.from(level, column));
            // SAFETY: required of the caller.
            unsafe { add::<M, 1>(n_rows, left, right, result.from(0, column)) };
        }
    }
}

/// Adds `N` columns of `left`, each times an element of the vector.
///
/// # Safety
/// The columns and the result have `n_rows` dense elements, and the vector has `N`.
#[inline(always)]
unsafe fn add<M: MultiplyAdd, const N: usize>(
    n_rows: usize,
    left: Matrix,
    right: Matrix,
    result: Matrix,
) {
    // SAFETY: required of the caller.
    let factors = unsafe { right.start.cast::<[f32; N]>().read_unaligned() };
    let columns: [*mut f32; N] = std::array::from_fn(|level| left.from(0, level).start);
    for row in 0..n_rows {
        let place = result.start.wrapping_add(row);
        // SAFETY: required of the caller.
        let mut sum = unsafe { place.read() };
        for level in 0..N {
            // SAFETY: required of the caller.
            let number = unsafe { columns[level].wrapping_add(row).read() };
            sum = M::multiply_add(number, factors[level], sum);
        }
        // SAFETY: required of the caller.
        unsafe { place.write(sum) };
    }
}
