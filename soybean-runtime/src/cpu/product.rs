//! Single-threaded matrix product. Operands are packed block by block, so that the microkernels
//! read them sequentially from caches. An operand need not be stored as a matrix, if it can pack
//! its blocks.
//!
//! The order of the loops and the names follow Goto & van de Geijn, "Anatomy of high-performance
//! matrix multiplication", 2008.
#![expect(unsafe_code, reason = "matrices of any strides in memory that other buffers share")]

use super::{isa::Isa, microkernel::Microkernels, pack::Panels};

/// Depth of a block. Panels of this depth stay in the L1 cache.
const DEPTH: usize = 384;
/// Rows of a packed block of the left operand, which stays in the L2 cache.
const ROWS: usize = 256;
/// Columns of a packed block of the right operand.
const COLUMNS: usize = 1536;

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) start: *mut f32,
    /// Distance between rows in elements.
    pub(crate) row: usize,
    /// Distance between columns in elements.
    pub(crate) column: usize,
}

// SAFETY: a matrix only holds an address. Each access states why it is exclusive.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

impl Matrix {
    /// Returns the matrix without the rows and columns before these.
    pub(crate) const fn from(self, row: usize, column: usize) -> Self {
        Self { start: self.start.wrapping_add(row * self.row + column * self.column), ..self }
    }

    /// Returns the transpose.
    pub(crate) const fn transposed(self) -> Self {
        Self { start: self.start, row: self.column, column: self.row }
    }
}

/// An operand of a product, in any representation, whose blocks can be packed into panels.
pub(crate) trait Operand: Copy {
    /// Returns the matrix without the rows and columns before these.
    fn from(self, row: usize, column: usize) -> Self;

    /// Returns the first rows and columns as panels of `height` rows, packed into `scratch` or in
    /// place. The product has `n_columns` columns.
    ///
    /// # Safety
    /// The matrix has these sizes, and `scratch` holds whole panels.
    unsafe fn as_left(
        self,
        sizes: (usize, usize),
        n_columns: usize,
        scratch: *mut f32,
        height: usize,
    ) -> Panels;

    /// Returns the first rows and columns as panels of `width` columns, packed into `scratch` or in
    /// place.
    ///
    /// # Safety
    /// As [`Self::as_left`].
    unsafe fn as_right(self, sizes: (usize, usize), scratch: *mut f32, width: usize) -> Panels;
}

/// Memory of one thread for packed blocks.
pub(crate) struct Workspace {
    _memory: Vec<f32>,
    left: *mut f32,
    right: *mut f32,
    spare: *mut f32,
    second: *mut f32,
    kernels: Microkernels,
    isa: Isa,
}

// SAFETY: the pointers refer to `_memory`.
unsafe impl Send for Workspace {}

const LINE: usize = 16;
/// Elements of the spare memory for partial results, which stays in the L2 cache.
pub(crate) const N_SPARE: usize = 129 * 1024;

impl Workspace {
    pub(crate) fn new(isa: Isa) -> Self {
        let kernels = Microkernels::new(isa);
        let n_left = ROWS.next_multiple_of(kernels.rows) * DEPTH;
        let n_right = COLUMNS.next_multiple_of(kernels.columns) * DEPTH;
        // Pages that are never touched cost nothing, so small products use little memory.
        let (n_left, n_right) = (n_left.next_multiple_of(LINE), n_right.next_multiple_of(LINE));
        let mut memory = vec![0.0; LINE + n_left + n_right + 2 * N_SPARE];
        let left = memory.as_mut_ptr();
        let left = left.wrapping_add(left.align_offset(64).min(LINE));
        let right = left.wrapping_add(n_left);
        let spare = right.wrapping_add(n_right);
        let second = spare.wrapping_add(N_SPARE);
        Self { _memory: memory, left, right, spare, second, kernels, isa }
    }

    /// Returns memory for [`N_SPARE`] elements that products do not use.
    pub(crate) const fn spare(&self) -> *mut f32 {
        self.spare
    }

    /// Returns a second block of spare memory.
    pub(crate) const fn second_spare(&self) -> *mut f32 {
        self.second
    }

    /// Returns the instruction set of the loops.
    pub(crate) const fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns rows and columns of the preferred tiles of products.
    pub(crate) const fn tile(&self) -> (usize, usize) {
        (self.kernels.rows, self.kernels.columns)
    }

    /// Computes `result = left * right`. Sizes are rows, columns and depth. Fastest with contiguous
    /// rows of the result.
    ///
    /// # Safety
    /// The matrices have these sizes, and nothing else writes to them.
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

    /// Computes `result += left * right`, otherwise as [`Self::multiply`].
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

    /// Computes `result = left * right`, or `result += left * right` if `adds`, otherwise as
    /// [`Self::multiply`].
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
                // SAFETY: the block is within the matrix, and fits in its memory.
                let right = unsafe { from.as_right((n_levels, n_columns), self.right, width) };
                for row in (0..n_rows).step_by(ROWS) {
                    let n_rows = ROWS.min(n_rows - row);
                    let (from, sizes) = (left.from(row, level), (n_rows, n_levels));
                    // SAFETY: as above.
                    let left = unsafe { from.as_left(sizes, n_columns, self.left, height) };
                    let (sizes, adds) = ((n_rows, n_columns, n_levels), adds || level > 0);
                    // SAFETY: as above; the operands have these sizes.
                    unsafe { self.block(sizes, left, right, result.from(row, column), adds) };
                }
            }
        }
    }

    /// Multiplies a block tile by tile.
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
                // SAFETY: required of the caller; the microkernel fits this size and this
                // processor.
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
/// The matrix has these sizes, and nothing else uses it.
unsafe fn fill_zero(n_rows: usize, n_columns: usize, result: Matrix) {
    for (row, column) in (0..n_rows).flat_map(|row| (0..n_columns).map(move |it| (row, it))) {
        // SAFETY: required of the caller.
        unsafe { result.from(row, column).start.write(0.0) };
    }
}
