//! One matrix product on one thread: operands are packed block by block, so that the innermost loops read them from caches in order.
//!
//! The order of loops and the names follow Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
#![expect(unsafe_code, reason = "matrices of any strides in memory that other buffers share")]

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

/// The memory of one thread for packed blocks.
pub(crate) struct Workspace {
    _memory: Vec<f32>,
    left: *mut f32,
    right: *mut f32,
    kernels: Microkernels,
}

// SAFETY: the pointers lead into `_memory`.
unsafe impl Send for Workspace {}

const LINE: usize = 16;

impl Workspace {
    pub(crate) fn new(isa: Isa) -> Self {
        let kernels = Microkernels::new(isa);
        let n_left = ROWS.next_multiple_of(kernels.rows) * DEPTH;
        let n_right = COLUMNS.next_multiple_of(kernels.columns) * DEPTH;
        // Pages that are never touched cost nothing, so small products stay small.
        let mut memory = vec![0.0; LINE + n_left.next_multiple_of(LINE) + n_right];
        let left = memory.as_mut_ptr();
        let left = left.wrapping_add(left.align_offset(64).min(LINE));
        let right = left.wrapping_add(n_left.next_multiple_of(LINE));
        Self { _memory: memory, left, right, kernels }
    }

    /// The rows and columns of the tiles into which products are best cut.
    pub(crate) const fn tile(&self) -> (usize, usize) {
        (self.kernels.rows, self.kernels.columns)
    }

    /// `result = left * right`, where sizes are rows, columns and depth, none of them 0. Fastest if the result's rows are next to each other.
    ///
    /// # Safety
    /// The matrices have these sizes, and nobody else writes to them.
    pub(crate) unsafe fn multiply(
        &mut self,
        (n_rows, n_columns, depth): (usize, usize, usize),
        left: Matrix,
        right: Matrix,
        result: Matrix,
    ) {
        for column in (0..n_columns).step_by(COLUMNS) {
            let n_columns = COLUMNS.min(n_columns - column);
            for level in (0..depth).step_by(DEPTH) {
                let n_levels = DEPTH.min(depth - level);
                let from = right.from(level, column);
                // SAFETY: the block is within the matrix, and fits in the memory for it.
                let right = unsafe { self.packed_right(from, n_columns, n_levels) };
                for row in (0..n_rows).step_by(ROWS) {
                    let n_rows = ROWS.min(n_rows - row);
                    let from = left.from(row, level);
                    // SAFETY: as above.
                    let left = unsafe { self.packed_left(from, n_rows, n_columns, n_levels) };
                    let sizes = (n_rows, n_columns, n_levels);
                    // SAFETY: as above; the operands hold these sizes.
                    unsafe { self.block(sizes, left, right, result.from(row, column), level > 0) };
                }
            }
        }
    }

    /// The left operand as panels of as many rows as a tile has, or as it lies.
    ///
    /// # Safety
    /// The matrix has these sizes.
    unsafe fn packed_left(
        &mut self,
        from: Matrix,
        n_rows: usize,
        n_columns: usize,
        n_levels: usize,
    ) -> Panels {
        let height = self.kernels.rows;
        // Loops read whole vectors, so only whole tiles can be read where they lie.
        if from.row == 1 && n_columns <= FEW_COLUMNS && n_rows.is_multiple_of(height) {
            return Panels { matrix: from, step: height };
        }
        for (panel, row) in (0..n_rows).step_by(height).enumerate() {
            let to = self.left.wrapping_add(panel * height * n_levels);
            let n_rows = height.min(n_rows - row);
            // SAFETY: required of the caller.
            unsafe { pack(from.from(row, 0), n_rows, n_levels, to, height) };
        }
        let matrix = Matrix { start: self.left, row: 1, column: height };
        Panels { matrix, step: height * n_levels }
    }

    /// The right operand as panels of as many columns as a tile has, or as it lies.
    ///
    /// # Safety
    /// The matrix has these sizes.
    unsafe fn packed_right(&mut self, from: Matrix, n_columns: usize, n_levels: usize) -> Panels {
        let width = self.kernels.columns;
        // Loops read single elements, so columns that are dense need no packing.
        if from.row == 1 && cfg!(not(target_arch = "aarch64")) {
            return Panels { matrix: from, step: width * from.column };
        }
        for (panel, column) in (0..n_columns).step_by(width).enumerate() {
            let to = self.right.wrapping_add(panel * width * n_levels);
            let n_columns = width.min(n_columns - column);
            let from = from.from(0, column).transposed();
            // SAFETY: required of the caller.
            unsafe { pack(from, n_columns, n_levels, to, width) };
        }
        let matrix = Matrix { start: self.right, row: width, column: 1 };
        Panels { matrix, step: width * n_levels }
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

/// An operand cut into panels, which follow one another at this step.
#[derive(Clone, Copy)]
struct Panels {
    matrix: Matrix,
    step: usize,
}

/// Levels that are packed at once, so that what is written stays in the first-level cache.
const STRIPE: usize = 16;

/// Copies a panel of `n` rows so that those of one level are next to each other, `width` apart from the next level's.
///
/// # Safety
/// The matrix has `n` rows and `n_levels` columns; `to` has room for `width` elements of each level.
unsafe fn pack(from: Matrix, n: usize, n_levels: usize, to: *mut f32, width: usize) {
    if from.row == 1 {
        for level in 0..n_levels {
            let (from, to) = (from.from(0, level).start, to.wrapping_add(level * width));
            // SAFETY: required of the caller.
            unsafe { to.copy_from_nonoverlapping(from, n) };
        }
        return;
    }
    for first in (0..n_levels).step_by(STRIPE) {
        for row in 0..n {
            for level in first..n_levels.min(first + STRIPE) {
                // SAFETY: required of the caller.
                let value = unsafe { from.from(row, level).start.read() };
                // SAFETY: required of the caller.
                unsafe { to.wrapping_add(level * width + row).write(value) };
            }
        }
    }
}
