//! Copies with another order of dims.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Permutation;

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
    space::{Space, offset},
};
use crate::{Error, ErrorKind};

/// Squares of this size are copied at once, so that lines of both sides stay in the cache.
const SQUARE: usize = 32;

/// A prepared [`Permutation`]. The last dim of the space, and for transposes the dim along which
/// the input is dense, are copied in squares.
pub(crate) struct PermutationKernel {
    /// The dims around the squares; operands are the result and the input.
    outer: Space,
    /// Extent and strides (result, input) of the dim that pairs with the last.
    paired: (usize, usize, usize),
    /// Extent of the last dim, and stride of the input.
    last: (usize, usize),
    n_needed: usize,
    n_points: usize,
    parts: Vec<()>,
}

impl Prepare for Permutation {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(PermutationKernel::new(self, threads.len()))
    }
}

impl CpuKernel for PermutationKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let ([input], result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(&input, &result) }
    }
}

impl PermutationKernel {
    pub(crate) fn new(permutation: &Permutation, n_threads: usize) -> Self {
        let dense = permutation.extents.dense_strides();
        let mut space = Space::new(&permutation.extents, &[dense, permutation.input]);
        let (n_needed, n_points) = (space.n_needed(1), space.n_points());
        let n_outer = space.extents.len() - 1;
        let last = (space.extents[n_outer], space.strides[1][n_outer]);
        let mut taken = vec![n_outer];
        let mut paired = (1, 0, 0);
        let pair = (0..n_outer).filter(|_| last.1 != 1).find(|dim| space.strides[1][*dim] == 1);
        if let Some(dim) = pair.or_else(|| n_outer.checked_sub(1)) {
            paired = (space.extents[dim], space.strides[0][dim], space.strides[1][dim]);
            taken.insert(0, dim);
        }
        for dim in taken.into_iter().rev() {
            space.extents.remove(dim);
            for strides in &mut space.strides {
                strides.remove(dim);
            }
        }
        Self { outer: space, paired, last, n_needed, n_points, parts: vec![(); n_threads] }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, input: &Region, result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        if input.n_elements < self.n_needed || result.n_elements < self.n_points {
            let (expected, found) =
                ((self.n_needed, self.n_points), (input.n_elements, result.n_elements));
            return fault(format!(
                "expected {} elements and a result of {}, found {} and {}",
                expected.0, expected.1, found.0, found.1
            ));
        }
        if input.overlaps(result) {
            return fault("expected a result apart from the input".to_owned());
        }
        if self.n_points == 0 {
            return Ok(());
        }
        let (outer, paired, last) = (&self.outer, self.paired, self.last);
        let n_stripes = paired.0.div_ceil(SQUARE);
        let n_units = outer.n_points() * n_stripes;
        parallel_for(&mut self.parts, n_units, 2 * self.n_points, |(), units| {
            for unit in units {
                let (number, stripe) = (unit / n_stripes, unit % n_stripes);
                let from = offset(&outer.extents, &outer.strides[1], number);
                let to = offset(&outer.extents, &outer.strides[0], number);
                let rows = stripe * SQUARE..paired.0.min((stripe + 1) * SQUARE);
                let pointers = (input.at(from), result.at(to));
                // SAFETY: both were checked to have all elements of the space; units have different
                // ones.
                unsafe { copy_stripe(pointers.0, pointers.1, rows, paired, last) };
            }
        });
        Ok(())
    }
}

/// # Safety
/// The pointers are to the start of a plane of the space for input and result, and nobody else
/// writes there.
unsafe fn copy_stripe(
    input: *const f32,
    result: *mut f32,
    rows: std::ops::Range<usize>,
    (_, row_to, row_from): (usize, usize, usize),
    (n_columns, column_from): (usize, usize),
) {
    if column_from == 1 {
        for row in rows {
            let (from, to) =
                (input.wrapping_add(row * row_from), result.wrapping_add(row * row_to));
            // SAFETY: required of the caller; the last dim is dense on both sides.
            unsafe { to.copy_from_nonoverlapping(from, n_columns) };
        }
        return;
    }
    for first in (0..n_columns).step_by(SQUARE) {
        for row in rows.clone() {
            for column in first..n_columns.min(first + SQUARE) {
                let from = input.wrapping_add(row * row_from + column * column_from);
                // SAFETY: required of the caller.
                let value = unsafe { from.read() };
                let to = result.wrapping_add(row * row_to + column);
                // SAFETY: required of the caller.
                unsafe { to.write(value) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::DType;

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    #[test]
    fn random_permutations_agree_with_plain_loops() {
        for seed in 0..400 {
            let mut dice = Dice(seed);
            let extents = dice.shape();
            let permutation = Permutation { extents, input: dice.strides(&extents) };
            let mut kernel = PermutationKernel::new(&permutation, 1 + dice.below(3));
            let mut input = dice.buffer(kernel.n_needed, DType::F32);
            let mut result = vec![f32::NAN; extents.n_elements()];
            let regions = (region(&mut input, DType::F32), region(&mut result, DType::F32));

            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&regions.0, &regions.1) }.unwrap());
            let expected: Vec<f32> =
                extents.points().iter().map(|it| input[permutation.input.offset(it)]).collect();
            assert_eq!(result, expected, "{permutation:?}");
        }
    }
}
