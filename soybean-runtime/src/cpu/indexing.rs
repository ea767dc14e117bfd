//! Elements by their indices along a dim, and sums of elements with equal indices.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{DType, Indexing, IndexingForm};

use super::{
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// The lines of a unit of work: a cache line of elements side by side.
const LINES: usize = 16;
/// The entry of elements that other ranks hold.
const ELSEWHERE: u32 = u32::MAX;

/// A prepared [`Indexing`].
pub(crate) struct IndexingKernel {
    indexing: Indexing,
    /// The row on this rank of each element of a whole line.
    rows: Vec<u32>,
    parts: Vec<()>,
}

impl Prepare for Indexing {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(IndexingKernel::new(self, threads.len()))
    }
}

impl CpuKernel for IndexingKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let (inputs, result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(inputs, &result) }
    }
}

impl IndexingKernel {
    pub(crate) fn new(indexing: &Indexing, n_threads: usize) -> Self {
        let rows = vec![ELSEWHERE; indexing.extent];
        Self { indexing: *indexing, rows, parts: vec![(); n_threads] }
    }

    /// Runs the kernel. Inputs are indices, lines or the elements to be summed, and the numbers of
    /// the rows.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, inputs: [Region; 3], result: &Region) -> Result<(), Error> {
        self.check(inputs, result)?;
        let indexing = self.indexing;
        let [indices, elements, numbers] = inputs;
        // SAFETY: the input was checked to have a number for each row; nobody writes there.
        let numbers = unsafe { std::slice::from_raw_parts(numbers.pointer.cast(), indexing.rows) };
        note_rows(numbers, &mut self.rows);
        let Indexing { outer, n_indices, inner, .. } = indexing;
        let n_all = outer * n_indices * inner;
        // SAFETY: the input was checked to have these indices; nobody writes there.
        let indices = unsafe { std::slice::from_raw_parts(indices.pointer.cast(), n_all) };
        let lines = Lines { indexing, rows: &self.rows, indices, elements };
        let n_strips = inner.div_ceil(LINES);
        let work = n_all + outer * lines.length() * inner;
        parallel_for(&mut self.parts, outer * n_strips, work, |(), units| {
            for unit in units {
                let (plane, first) = (unit / n_strips, unit % n_strips * LINES);
                let columns = first..inner.min(first + LINES);
                // SAFETY: the elements and the result were checked to have all lines; units are
                // different lines of the result, to which nobody else writes.
                unsafe { lines.run(plane, columns, result) };
            }
        });
        Ok(())
    }

    fn check(&self, inputs: [Region; 3], result: &Region) -> Result<(), Error> {
        let Indexing { form, outer, n_indices, rows, inner, .. } = self.indexing;
        let (held, given) = (outer * rows * inner, outer * n_indices * inner);
        let (n_elements, n_result) = match form {
            IndexingForm::Gather => (held, given),
            IndexingForm::ScatterAdd => (given, held),
        };
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let expected = [(given, DType::I32), (n_elements, DType::F32), (rows, DType::I32)];
        for (number, (input, (n_elements, dtype))) in inputs.iter().zip(expected).enumerate() {
            let (n_found, found) = (input.n_elements, input.dtype);
            if n_found < n_elements {
                return fault(format!(
                    "input {number}: expected {n_elements} elements, found {n_found}"
                ));
            }
            if found != dtype {
                return fault(format!(
                    "input {number}: expected elements of {dtype}, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        if result.n_elements < n_result {
            let found = result.n_elements;
            return fault(format!("result: expected {n_result} elements, found {found}"));
        }
        Ok(())
    }
}

/// Stores the row of each number of a whole line.
fn note_rows(numbers: &[i32], rows: &mut [u32]) {
    rows.fill(ELSEWHERE);
    for (row, number) in (0..).zip(numbers) {
        let slot = usize::try_from(*number).ok().and_then(|it| rows.get_mut(it));
        if let Some(slot) = slot {
            *slot = row;
        }
    }
}

/// The operands of a run.
struct Lines<'a> {
    indexing: Indexing,
    rows: &'a [u32],
    indices: &'a [i32],
    elements: Region,
}

impl Lines<'_> {
    /// Returns the elements of a line of the result.
    const fn length(&self) -> usize {
        match self.indexing.form {
            IndexingForm::Gather => self.indexing.n_indices,
            IndexingForm::ScatterAdd => self.indexing.rows,
        }
    }

    /// Returns the row of an index, if this rank holds it.
    fn row(&self, index: i32) -> Option<usize> {
        let row = self.rows.get(usize::try_from(index).ok()?)?;
        Some(*row as usize).filter(|_| *row != ELSEWHERE)
    }

    /// Computes some lines of a plane.
    ///
    /// # Safety
    /// Elements and result have all lines; nobody else uses these lines of the result.
    unsafe fn run(&self, plane: usize, columns: Range<usize>, result: &Region) {
        let Indexing { form, n_indices, rows, inner, .. } = self.indexing;
        if form == IndexingForm::ScatterAdd {
            for row in 0..rows {
                let to = result.at((plane * rows + row) * inner + columns.start);
                // SAFETY: required of the caller.
                unsafe { to.write_bytes(0, columns.len()) };
            }
        }
        for position in 0..n_indices {
            for column in columns.clone() {
                let at = (plane * n_indices + position) * inner + column;
                let row = self.row(self.indices[at]);
                let stored = row.map(|row| (plane * rows + row) * inner + column);
                match (form, stored) {
                    (IndexingForm::Gather, stored) => {
                        // SAFETY: required of the caller; the row is one of the lines.
                        let element = stored.map(|it| unsafe { self.elements.at(it).read() });
                        // SAFETY: required of the caller.
                        unsafe { result.at(at).write(element.unwrap_or(0.0)) };
                    }
                    (IndexingForm::ScatterAdd, Some(stored)) => {
                        // SAFETY: required of the caller; there is an element for each index.
                        let element = unsafe { self.elements.at(at).read() };
                        // SAFETY: required of the caller; the row is one of the lines.
                        unsafe { *result.at(stored) += element };
                    }
                    (IndexingForm::ScatterAdd, None) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::KernelDescriptor as _;

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    /// Returns the rows that a rank holds: all, a block, or every second.
    fn numbers(dice: &mut Dice, extent: usize) -> Vec<usize> {
        match dice.below(3) {
            0 => (0..extent).collect(),
            1 => (extent / 3..extent * 2 / 3).collect(),
            _ => (0..extent).skip(1).step_by(2).collect(),
        }
    }

    fn integers(all: &[usize]) -> Vec<f32> {
        all.iter().map(|it| f32::from_bits(u32::try_from(*it).unwrap())).collect()
    }

    fn wide(all: &[f32]) -> Vec<f64> {
        all.iter().map(|it| f64::from(*it)).collect()
    }

    #[test]
    fn random_indexings_agree_with_the_reference() {
        for seed in 0..400 {
            let mut dice = Dice(seed);
            let form = dice.pick(IndexingForm::ALL);
            let extent = dice.pick(&[1, 7, 100]);
            let held = numbers(&mut dice, extent);
            let (outer, inner) = (dice.pick(&[0, 1, 3, 20]), dice.pick(&[1, 2, 33]));
            let (n_indices, rows) = (dice.pick(&[0, 1, 5, 60]), held.len());
            let indexing = Indexing { form, outer, n_indices, rows, extent, inner };
            let mut kernel = IndexingKernel::new(&indexing, 1 + dice.below(3));
            // One number beyond the line.
            let given: Vec<usize> =
                (0..outer * n_indices * inner).map(|_| dice.below(extent + 1)).collect();
            let (n_elements, n_result) = match form {
                IndexingForm::Gather => (outer * rows * inner, given.len()),
                IndexingForm::ScatterAdd => (given.len(), outer * rows * inner),
            };
            // Multiples of an eighth, whose sums are exact.
            let mut elements: Vec<f32> =
                (0..n_elements).map(|_| dice.below(64) as f32 / 8.0 - 4.0).collect();
            let mut result = vec![f32::NAN; n_result];
            let mut words = [integers(&given), integers(&held)];
            let [indices, places] = &mut words;
            let inputs = [
                region(indices, DType::I32),
                region(&mut elements, DType::F32),
                region(places, DType::I32),
            ];
            let to = region(&mut result, DType::F32);
            // SAFETY: the buffers are this test's.
            in_pool(|| unsafe { kernel.run(inputs, &to) }.unwrap());
            let [given, held] =
                [&given, &held].map(|it| it.iter().map(|it| *it as f64).collect::<Vec<_>>());
            let expected = &indexing.evaluate(&[&given, &wide(&elements), &held], &[])[0];
            assert_eq!(&wide(&result), expected, "{indexing:?}");
        }
    }
}
