//! Packing of matrix blocks into panels, in the order in which the microkernels read them.
#![expect(unsafe_code, reason = "matrices of any strides in memory that other buffers share")]

use std::ops::Range;

use super::product::{Matrix, Operand};

/// With so few columns, packing the left operand costs more than it saves.
const FEW_COLUMNS: usize = 12;

/// An operand as panels at a fixed distance.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    /// The first panel, or all panels if they are contiguous.
    pub(crate) matrix: Matrix,
    pub(crate) step: usize,
}

/// True if the microkernels read the right operand element by element, so that dense columns need
/// no packing.
pub(crate) const READS_DENSE_COLUMNS: bool = cfg!(not(target_arch = "aarch64"));

impl Operand for Matrix {
    fn from(self, row: usize, column: usize) -> Self {
        Self::from(self, row, column)
    }

    unsafe fn as_left(
        self,
        (n_rows, n_levels): (usize, usize),
        n_columns: usize,
        scratch: *mut f32,
        height: usize,
    ) -> Panels {
        // Microkernels read whole vectors, so only whole tiles can be used without packing.
        let is_panel = self.column == height && n_rows == height;
        let is_worth = is_panel || n_columns <= FEW_COLUMNS;
        if self.row == 1 && is_worth && n_rows.is_multiple_of(height) {
            return Panels { matrix: self, step: height };
        }
        for (panel, row) in (0..n_rows).step_by(height).enumerate() {
            let to = scratch.wrapping_add(panel * height * n_levels);
            let n_rows = height.min(n_rows - row);
            // SAFETY: required of the caller.
            unsafe { pack(self.from(row, 0), n_rows, n_levels, to, height) };
        }
        let matrix = Self { start: scratch, row: 1, column: height };
        Panels { matrix, step: height * n_levels }
    }

    unsafe fn as_right(
        self,
        (n_levels, n_columns): (usize, usize),
        scratch: *mut f32,
        width: usize,
    ) -> Panels {
        if self.row == 1 && READS_DENSE_COLUMNS {
            return Panels { matrix: self, step: width * self.column };
        }
        for (panel, column) in (0..n_columns).step_by(width).enumerate() {
            let to = scratch.wrapping_add(panel * width * n_levels);
            let n_columns = width.min(n_columns - column);
            let from = self.from(0, column).transposed();
            // SAFETY: required of the caller.
            unsafe { pack(from, n_columns, n_levels, to, width) };
        }
        let matrix = Self { start: scratch, row: width, column: 1 };
        Panels { matrix, step: width * n_levels }
    }
}

/// Levels that are packed at once, so that the output stays in the L1 cache.
const STRIPE: usize = 64;
/// Size of the squares that are transposed in registers.
const SQUARE: usize = 4;

/// Copies a panel of `n` rows so that each level is contiguous, at a distance of `width`.
///
/// # Safety
/// The matrix has `n` rows and `n_levels` columns. `to` holds `n` elements per level, and nothing
/// else uses it.
pub(crate) unsafe fn pack(from: Matrix, n: usize, n_levels: usize, to: *mut f32, width: usize) {
    if from.row == 1 {
        for level in 0..n_levels {
            let (from, to) = (from.from(0, level).start, to.wrapping_add(level * width));
            // SAFETY: required of the caller.
            unsafe { copy_short(from, to, n) };
        }
        return;
    }
    // Whole squares first, then the rest to the right, then the rest below.
    let is_dense = from.column == 1;
    let n_square = if is_dense { n / SQUARE * SQUARE } else { 0 };
    for first in (0..n_levels).step_by(STRIPE) {
        let end = n_levels.min(first + STRIPE);
        let end_square = first + (end - first) / SQUARE * SQUARE;
        for row in (0..n_square).step_by(SQUARE) {
            for level in (first..end_square).step_by(SQUARE) {
                let to = to.wrapping_add(level * width + row);
                // SAFETY: required of the caller; the square is within the panel.
                unsafe { transpose(from.from(row, level), to, width) };
            }
        }
        // SAFETY: required of the caller.
        unsafe { pack_each(from, 0..n_square, end_square..end, to, width) };
        // SAFETY: as above.
        unsafe { pack_each(from, n_square..n, first..end, to, width) };
    }
}

/// Copies some rows and levels of a panel element by element.
///
/// # Safety
/// As [`pack`].
unsafe fn pack_each(
    from: Matrix,
    rows: Range<usize>,
    levels: Range<usize>,
    to: *mut f32,
    width: usize,
) {
    for row in rows {
        for level in levels.clone() {
            // SAFETY: required of the caller.
            let value = unsafe { from.from(row, level).start.read() };
            // SAFETY: required of the caller.
            unsafe { to.wrapping_add(level * width + row).write(value) };
        }
    }
}

/// Transposes a square with dense rows.
///
/// # Safety
/// The matrix has the square, and `to` holds its columns at a distance of `width`.
#[inline(always)]
unsafe fn transpose(from: Matrix, to: *mut f32, width: usize) {
    let mut square = [[0.0; SQUARE]; SQUARE];
    for (number, row) in square.iter_mut().enumerate() {
        let from = from.from(number, 0).start.cast::<[f32; SQUARE]>();
        // SAFETY: required of the caller.
        *row = unsafe { from.read_unaligned() };
    }
    for level in 0..SQUARE {
        let column = square.map(|row| row[level]);
        let to = to.wrapping_add(level * width).cast::<[f32; SQUARE]>();
        // SAFETY: required of the caller.
        unsafe { to.write_unaligned(column) };
    }
}

/// Copies up to about 50 elements, faster than a call of the general function.
///
/// # Safety
/// Both have `n` elements and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const f32, to: *mut f32, n: usize) {
    // The last vector may overlap the previous one.
    if n >= 16 {
        let mut at = 0;
        while at < n - 16 {
            // SAFETY: required of the caller, here and below.
            unsafe { copy_vector::<16>(from, to, at) };
            at += 16;
        }
        // SAFETY: see above.
        unsafe { copy_vector::<16>(from, to, n - 16) };
    } else if n >= 8 {
        // SAFETY: see above.
        unsafe { copy_vector::<8>(from, to, 0) };
        // SAFETY: see above.
        unsafe { copy_vector::<8>(from, to, n - 8) };
    } else if n >= 4 {
        // SAFETY: see above.
        unsafe { copy_vector::<4>(from, to, 0) };
        // SAFETY: see above.
        unsafe { copy_vector::<4>(from, to, n - 4) };
    } else {
        for at in 0..n {
            // SAFETY: see above.
            unsafe { copy_vector::<1>(from, to, at) };
        }
    }
}

/// # Safety
/// Both have `N` elements from `at` on and do not overlap.
#[inline(always)]
unsafe fn copy_vector<const N: usize>(from: *const f32, to: *mut f32, at: usize) {
    // SAFETY: required of the caller.
    let vector = unsafe { from.wrapping_add(at).cast::<[f32; N]>().read_unaligned() };
    // SAFETY: as above.
    unsafe { to.wrapping_add(at).cast::<[f32; N]>().write_unaligned(vector) };
}
