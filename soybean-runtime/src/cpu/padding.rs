//! Copies of windows that may reach beyond a tensor.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{DType, Padding};

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A prepared [`Padding`]. A unit of work is a row along the last dim.
pub(crate) struct PaddingKernel {
    /// The dims before the last, outermost first.
    outer: Vec<Dim>,
    row: Dim,
    fill: f64,
    n_needed: usize,
    parts: Vec<()>,
}

/// The window along one dim.
#[derive(Clone, Copy)]
struct Dim {
    input: usize,
    result: usize,
    low: isize,
}

impl Dim {
    /// Returns the position in the input of this position of the result, if there is one.
    fn inside(self, at: usize) -> Option<usize> {
        at.checked_add_signed(-self.low).filter(|it| *it < self.input)
    }

    /// Returns the positions of the result that are in the input.
    fn seen(self) -> Range<usize> {
        let bound = |at: usize| at.saturating_add_signed(self.low).min(self.result);
        bound(0)..bound(self.input)
    }
}

impl Prepare for Padding {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(PaddingKernel::new(self, threads.len()))
    }
}

impl CpuKernel for PaddingKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let ([input], result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(&input, &result) }
    }
}

impl PaddingKernel {
    pub(crate) fn new(padding: &Padding, n_threads: usize) -> Self {
        let mut dims: Vec<Dim> = Vec::new();
        let extents = padding.input.iter().zip(padding.result.iter()).zip(padding.low);
        for ((input, result), low) in extents {
            let low = isize::try_from(low).expect("32 bits fit in an address");
            // A dim that is kept whole is merged into the one before.
            match dims.last_mut().filter(|_| low == 0 && input == result) {
                Some(last) => {
                    last.input *= input;
                    last.result *= result;
                    last.low *= input.cast_signed();
                }
                None => dims.push(Dim { input: *input, result: *result, low }),
            }
        }
        let row = dims.pop().unwrap_or(Dim { input: 1, result: 1, low: 0 });
        Self {
            outer: dims,
            row,
            fill: padding.fill,
            n_needed: padding.input.n_elements(),
            parts: vec![(); n_threads],
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, input: &Region, result: &Region) -> Result<(), Error> {
        let n_rows = self.outer.iter().map(|it| it.result).product::<usize>();
        let n_points = n_rows * self.row.result;
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        if input.n_elements < self.n_needed || result.n_elements < n_points {
            let (expected, found) = (self.n_needed, (input.n_elements, result.n_elements));
            return fault(format!(
                "expected {expected} elements and a result of {n_points}, found {} and {}",
                found.0, found.1
            ));
        }
        if input.overlaps(result) {
            return fault("expected a result apart from the input".to_owned());
        }
        let (outer, row, fill) = (&self.outer, self.row, bits(self.fill, result.dtype));
        parallel_for(&mut self.parts, n_rows, n_points, |(), rows| {
            for number in rows {
                let to = result.at(number * row.result);
                // SAFETY: the result was checked to have all rows; each is written once.
                let to = unsafe { std::slice::from_raw_parts_mut(to, row.result) };
                let seen = if to.is_empty() { None } else { source(outer, number) };
                let Some(from) = seen.filter(|_| !row.seen().is_empty()) else {
                    to.fill(fill);
                    continue;
                };
                let Range { start, end } = row.seen();
                let first = row.inside(start).expect("a seen element is inside");
                let from = input.at(from * row.input + first);
                // SAFETY: the input was checked to have all elements; nobody writes there.
                let from = unsafe { std::slice::from_raw_parts(from, end - start) };
                to[..start].fill(fill);
                to[start..end].copy_from_slice(from);
                to[end..].fill(fill);
            }
        });
        Ok(())
    }
}

/// Returns the row of the input that a row of the result copies, unless it is outside.
fn source(outer: &[Dim], mut row: usize) -> Option<usize> {
    let (mut number, mut step) = (0, 1);
    for dim in outer.iter().rev() {
        number += dim.inside(row % dim.result)? * step;
        row /= dim.result;
        step *= dim.input;
    }
    Some(number)
}

/// Returns a number as an element of this type, in the type in which elements are copied.
fn bits(value: f64, dtype: DType) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the type of the elements")]
    match dtype {
        // Elements of bf16 are converted before.
        DType::F32 | DType::Bf16 => value as f32,
        DType::I32 => f32::from_bits((value.round() as i32).cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{MAX_RANK, Shape};

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    fn random(dice: &mut Dice) -> Padding {
        let input = dice.shape();
        let (mut low, mut result) = ([0; MAX_RANK], input.to_vec());
        for (dim, extent) in result.iter_mut().enumerate() {
            if dice.below(2) == 0 {
                continue;
            }
            let before = dice.pick(&[-7, -2, -1, 0, 0, 1, 2, 30]);
            let after = dice.pick(&[-7, -2, -1, 0, 0, 1, 2, 30]);
            low[dim] = i32::try_from(before).unwrap();
            *extent = extent.saturating_add_signed(before + after);
        }
        Padding { input, result: Shape::new(&result), low, fill: dice.pick(&[0.0, -3.0, 1.5]) }
    }

    fn expected(padding: &Padding, input: &[f32], dtype: DType) -> Vec<u32> {
        let inside = |point: &[usize]| {
            let inside = |dim: usize| {
                let at = i64::try_from(point[dim]).unwrap() - i64::from(padding.low[dim]);
                usize::try_from(at).ok().filter(|at| *at < padding.input[dim])
            };
            (0..point.len()).map(inside).collect::<Option<Vec<usize>>>()
        };
        #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
        let fill = match dtype {
            DType::F32 | DType::Bf16 => (padding.fill as f32).to_bits(),
            DType::I32 => (padding.fill.round() as i32).cast_unsigned(),
        };
        let strides = padding.input.dense_strides();
        let value = |point: &Vec<usize>| {
            inside(point).map_or(fill, |it| input[strides.offset(&it)].to_bits())
        };
        padding.result.points().iter().map(value).collect()
    }

    #[test]
    fn random_windows_agree_with_plain_loops() {
        for seed in 0..400 {
            let mut dice = Dice(seed);
            let padding = random(&mut dice);
            if padding.result.n_elements() > 400_000 {
                continue;
            }
            let dtype = dice.pick(&[DType::F32, DType::I32]);
            let mut kernel = PaddingKernel::new(&padding, 1 + dice.below(3));
            let mut input = dice.buffer(padding.input.n_elements(), dtype);
            let mut result = vec![f32::NAN; padding.result.n_elements()];
            let regions = (region(&mut input, dtype), region(&mut result, dtype));
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(&regions.0, &regions.1) }.unwrap());
            let found: Vec<u32> = result.iter().map(|it| it.to_bits()).collect();
            assert_eq!(found, expected(&padding, &input, dtype), "{padding:?}");
        }
    }
}
