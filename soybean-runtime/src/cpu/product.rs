//! One matrix product on one thread: operands are packed block by block, so that the innermost loops read them from caches in order. An
//! operand need not exist as a matrix in memory, as long as it can pack its blocks.
//!
//! The order of loops and the names follow Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
#![expect(unsafe_code, reason = "matrices of any strides in memory that other buffers share")]

use std::ops::Range;

use super::{isa::Isa, microkernel::Microkernels};

/// Depth of a block: panels of this depth stay in the first-level cache.
const DEPTH: usize = 384;
/// Rows of a packed block of the left operand: it stays in the second-level cache.
const ROWS: usize = 256;
/// Columns of a packed block of the right operand.
const COLUMNS: usize = 1536;
/// With so few columns, packing the left operand costs more than it saves.
const FEW_COLUMNS: usize = 12;

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) start: *mut f32,
    /// The stride from row to row.
    pub(crate) row: usize,
    /// The stride from column to column.
    pub(crate) column: usize,
}

// SAFETY: a matrix is a place, not a permission: each access says for itself why it is alone.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// The matrix without the rows and columns before these.
    pub(crate) const fn from(self, row: usize, column: usize) -> Self {
        Self { start: self.start.wrapping_add(row * self.row + column * self.column), ..self }
    }

    /// Rows for columns.
    pub(crate) const fn transposed(self) -> Self {
        Self { start: self.start, row: self.column, column: self.row }
    }
}

/// A factor of a product: a matrix, in whatever way its elements are found, of which blocks are packed into panels.
pub(crate) trait Operand: Copy {
    /// The matrix without the rows and columns before these.
    fn from(self, row: usize, column: usize) -> Self;

    /// The first rows and columns as panels of `height` rows, packed into `room`, or as they lie; the product has `n_columns` columns.
    ///
    /// # Safety
    /// The matrix has these sizes, and `room` is large enough for whole panels.
    unsafe fn as_left(
        self,
        sizes: (usize, usize),
        n_columns: usize,
        room: *mut f32,
        height: usize,
    ) -> Panels;

    /// The first rows and columns as panels of `width` columns, packed into `room`, or as they lie.
    ///
    /// # Safety
    /// As [`Self::as_left`].
    unsafe fn as_right(self, sizes: (usize, usize), room: *mut f32, width: usize) -> Panels;
}

/// The memory of one thread for packed blocks.
pub(crate) struct Workspace {
    _memory: Vec<f32>,
    left: *mut f32,
    right: *mut f32,
    spare: *mut f32,
    kernels: Microkernels,
}

// SAFETY: the pointers lead into `_memory`.
unsafe impl Send for Workspace {}

const LINE: usize = 16;
/// Elements of the memory for partial results: it stays in the second-level cache.
pub(crate) const N_SPARE: usize = 129 * 1024;

impl Workspace {
    pub(crate) fn new(isa: Isa) -> Self {
        let kernels = Microkernels::new(isa);
        let n_left = ROWS.next_multiple_of(kernels.rows) * DEPTH;
        let n_right = COLUMNS.next_multiple_of(kernels.columns) * DEPTH;
        // Pages that are never touched cost nothing, so small products stay small.
        let (n_left, n_right) = (n_left.next_multiple_of(LINE), n_right.next_multiple_of(LINE));
        let mut memory = vec![0.0; LINE + n_left + n_right + N_SPARE];
        let left = memory.as_mut_ptr();
        let left = left.wrapping_add(left.align_offset(64).min(LINE));
        let right = left.wrapping_add(n_left);
        let spare = right.wrapping_add(n_right);
        Self { _memory: memory, left, right, spare, kernels }
    }

    /// Room for [`N_SPARE`] elements that products do not use.
    pub(crate) const fn spare(&self) -> *mut f32 {
        self.spare
    }

    /// The rows and columns of the tiles into which products are best cut.
    pub(crate) const fn tile(&self) -> (usize, usize) {
        (self.kernels.rows, self.kernels.columns)
    }

    /// `result = left * right`, where sizes are rows, columns and depth. Fastest if the result's rows are next to each other.
    ///
    /// # Safety
    /// The matrices have these sizes, and nobody else writes to them.
    pub(crate) unsafe fn multiply(
        &mut self,
        sizes: (usize, usize, usize),
        left: impl Operand,
        right: impl Operand,
        result: Matrix,
    ) {
        // SAFETY: required of the caller.
        unsafe { self.product(sizes, left, right, result, false) };
    }

    /// `result += left * right`, else as [`Self::multiply`].
    ///
    /// # Safety
    /// As [`Self::multiply`].
    pub(crate) unsafe fn multiply_add(
        &mut self,
        sizes: (usize, usize, usize),
        left: impl Operand,
        right: impl Operand,
        result: Matrix,
    ) {
        // SAFETY: required of the caller.
        unsafe { self.product(sizes, left, right, result, true) };
    }

    /// `result = left * right`, or `result += left * right` if it `adds`, else as [`Self::multiply`].
    ///
    /// # Safety
    /// As [`Self::multiply`].
    pub(crate) unsafe fn product(
        &mut self,
        (n_rows, n_columns, depth): (usize, usize, usize),
        left: impl Operand,
        right: impl Operand,
        result: Matrix,
        adds: bool,
    ) {
        if depth == 0 && !adds {
            // SAFETY: required of the caller.
            unsafe { fill_zero(n_rows, n_columns, result) };
        }
        let (height, width) = self.tile();
        for column in (0..n_columns).step_by(COLUMNS) {
            let n_columns = COLUMNS.min(n_columns - column);
            for level in (0..depth).step_by(DEPTH) {
                let n_levels = DEPTH.min(depth - level);
                let from = right.from(level, column);
                // SAFETY: the block is within the matrix, and fits in the memory for it.
                let right = unsafe { from.as_right((n_levels, n_columns), self.right, width) };
                for row in (0..n_rows).step_by(ROWS) {
                    let n_rows = ROWS.min(n_rows - row);
                    let (from, sizes) = (left.from(row, level), (n_rows, n_levels));
                    // SAFETY: as above.
                    let left = unsafe { from.as_left(sizes, n_columns, self.left, height) };
                    let (sizes, adds) = ((n_rows, n_columns, n_levels), adds || level > 0);
                    // SAFETY: as above; the operands hold these sizes.
                    unsafe { self.block(sizes, left, right, result.from(row, column), adds) };
                }
            }
        }
    }

    /// Multiplies a block, tile by tile.
    ///
    /// # Safety
    /// The operands and the result have these sizes.
    unsafe fn block(
        &self,
        (n_rows, n_columns, n_levels): (usize, usize, usize),
        left: Panels,
        right: Panels,
        result: Matrix,
        adds: bool,
    ) {
        let (height, width) = (self.kernels.rows, self.kernels.columns);
        let step = |stride: usize| stride.cast_signed();
        for (right_panel, column) in (0..n_columns).step_by(width).enumerate() {
            let n_columns = width.min(n_columns - column);
            for (left_panel, row) in (0..n_rows).step_by(height).enumerate() {
                let n_rows = height.min(n_rows - row);
                // SAFETY: required of the caller; the loop is for this size and this processor.
                unsafe {
                    self.kernels.function(n_rows, n_columns)(
                        n_rows,
                        n_columns,
                        n_levels,
                        result.from(row, column).start,
                        left.matrix.start.wrapping_add(left_panel * left.step),
                        right.matrix.start.wrapping_add(right_panel * right.step),
                        step(result.column),
                        step(result.row),
                        step(left.matrix.column),
                        step(right.matrix.row),
                        step(right.matrix.column),
                        1.0,
                        1.0,
                        u8::from(adds),
                        false,
                        false,
                        false,
                        std::ptr::null(),
                    );
                }
            }
        }
    }
}

/// # Safety
/// The matrix has these sizes, and nobody else uses it.
unsafe fn fill_zero(n_rows: usize, n_columns: usize, result: Matrix) {
    for (row, column) in (0..n_rows).flat_map(|row| (0..n_columns).map(move |it| (row, it))) {
        // SAFETY: required of the caller.
        unsafe { result.from(row, column).start.write(0.0) };
    }
}

/// An operand cut into panels, which follow one another at this step.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    /// The first panel, or all of them if they are next to one another.
    pub(crate) matrix: Matrix,
    pub(crate) step: usize,
}

/// Whether the innermost loops read the right operand element by element, so that columns that are dense need no packing.
pub(crate) const READS_DENSE_COLUMNS: bool = cfg!(not(target_arch = "aarch64"));

impl Operand for Matrix {
    fn from(self, row: usize, column: usize) -> Self {
        Self::from(self, row, column)
    }

    unsafe fn as_left(
        self,
        (n_rows, n_levels): (usize, usize),
        n_columns: usize,
        room: *mut f32,
        height: usize,
    ) -> Panels {
        // Loops read whole vectors, so only whole tiles can be read where they lie.
        let is_panel = self.column == height && n_rows == height;
        let is_worth = is_panel || n_columns <= FEW_COLUMNS;
        if self.row == 1 && is_worth && n_rows.is_multiple_of(height) {
            return Panels { matrix: self, step: height };
        }
        for (panel, row) in (0..n_rows).step_by(height).enumerate() {
            let to = room.wrapping_add(panel * height * n_levels);
            let n_rows = height.min(n_rows - row);
            // SAFETY: required of the caller.
            unsafe { pack(self.from(row, 0), n_rows, n_levels, to, height) };
        }
        let matrix = Self { start: room, row: 1, column: height };
        Panels { matrix, step: height * n_levels }
    }

    unsafe fn as_right(
        self,
        (n_levels, n_columns): (usize, usize),
        room: *mut f32,
        width: usize,
    ) -> Panels {
        if self.row == 1 && READS_DENSE_COLUMNS {
            return Panels { matrix: self, step: width * self.column };
        }
        for (panel, column) in (0..n_columns).step_by(width).enumerate() {
            let to = room.wrapping_add(panel * width * n_levels);
            let n_columns = width.min(n_columns - column);
            let from = self.from(0, column).transposed();
            // SAFETY: required of the caller.
            unsafe { pack(from, n_columns, n_levels, to, width) };
        }
        let matrix = Self { start: room, row: width, column: 1 };
        Panels { matrix, step: width * n_levels }
    }
}

/// Levels that are packed at once, so that what is written stays in the first-level cache.
const STRIPE: usize = 64;
/// The side of the squares in which rows become columns: a few registers hold one.
const SQUARE: usize = 4;

/// Copies a panel of `n` rows so that those of one level are next to each other, `width` apart from the next level's.
///
/// # Safety
/// The matrix has `n` rows and `n_levels` columns; `to` has room for `n` elements of each level, and nobody else uses them.
pub(crate) unsafe fn pack(from: Matrix, n: usize, n_levels: usize, to: *mut f32, width: usize) {
    if from.row == 1 {
        for level in 0..n_levels {
            let (from, to) = (from.from(0, level).start, to.wrapping_add(level * width));
            // SAFETY: required of the caller.
            unsafe { copy_short(from, to, n) };
        }
        return;
    }
    // Whole squares first, then what is left to the right of them, then below.
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

/// Copies some rows and levels of a panel one element at a time.
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

/// Copies a square whose rows are dense, so that its columns are.
///
/// # Safety
/// The matrix has the square; `to` has room for its columns, `width` apart.
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

/// Copies some 50 elements at most: a call of the general function would take longer than the copy.
///
/// # Safety
/// Both have `n` elements, and do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const f32, to: *mut f32, n: usize) {
    // The last vector may overlap the one before.
    if n >= 16 {
        let mut at = 0;
        while at < n - 16 {
            // SAFETY: required of the caller, as below.
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
/// Both have `N` elements from `at` on, and do not overlap.
#[inline(always)]
unsafe fn copy_vector<const N: usize>(from: *const f32, to: *mut f32, at: usize) {
    // SAFETY: required of the caller.
    let vector = unsafe { from.wrapping_add(at).cast::<[f32; N]>().read_unaligned() };
    // SAFETY: as above.
    unsafe { to.wrapping_add(at).cast::<[f32; N]>().write_unaligned(vector) };
}
