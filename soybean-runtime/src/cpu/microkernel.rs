//! The innermost loops of matrix products: those of the crate `gemm`, chosen for the processor.

use super::isa::Isa;

/// `result[i, j] = keep * result[i, j] + factor * sum over k of left[i, k] * right[k, j]` for a
/// tile in registers.
///
/// The arguments are: rows, columns and depth; the result and the operands; the strides of the
/// result from column to column and from row to row, of the left from column to column, of the
/// right from row to row and from column to column; `keep`, `factor`, and a flag for the values 0
/// and 1 of `keep`. Conjugates and prefetching are not used.
type Function = unsafe fn(
    usize,
    usize,
    usize,
    *mut f32,
    *const f32,
    *const f32,
    isize,
    isize,
    isize,
    isize,
    isize,
    f32,
    f32,
    u8,
    bool,
    bool,
    bool,
    *const f32,
);

/// The loops for tiles of up to `rows x columns` elements.
#[derive(Clone, Copy)]
pub(crate) struct Microkernels {
    /// The maximum number of rows of a tile.
    pub(crate) rows: usize,
    /// The maximum number of columns of a tile.
    pub(crate) columns: usize,
    lanes: usize,
    /// Indexed by the number of vectors in a column of the tile, then by its number of columns,
    /// both less one.
    functions: &'static [&'static [Function]],
}

macro_rules! microkernels {
    ($lanes:literal, $module:path) => {{
        use $module as kernels;
        const FUNCTIONS: &[&[Function]] = &{
            let mut rows: [&[Function]; kernels::MR_DIV_N] = [&[]; kernels::MR_DIV_N];
            let mut row = 0;
            while row < kernels::MR_DIV_N {
                rows[row] = &kernels::UKR[row];
                row += 1;
            }
            rows
        };
        Microkernels {
            rows: kernels::MR_DIV_N * $lanes,
            columns: kernels::NR,
            lanes: $lanes,
            functions: FUNCTIONS,
        }
    }};
}

impl Microkernels {
    /// Returns the loops for this instruction set.
    pub(crate) const fn new(isa: Isa) -> Self {
        match isa {
            #[cfg(target_arch = "aarch64")]
            Isa::Baseline => microkernels!(4, gemm_f32::microkernel::neon::f32),
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Baseline => microkernels!(1, gemm_f32::microkernel::scalar::f32),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => microkernels!(8, gemm_f32::microkernel::fma::f32),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => microkernels!(16, gemm_f32::microkernel::avx512f::f32),
        }
    }

    /// Returns the loop for a tile of this size, neither of which is 0.
    pub(crate) const fn function(&self, n_rows: usize, n_columns: usize) -> Function {
        self.functions[(n_rows - 1) / self.lanes][n_columns - 1]
    }
}
