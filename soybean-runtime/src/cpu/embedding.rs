//! Lookups of rows in tables, and their gradients.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{Combine, DType, Embedding, EmbeddingForm};

use super::{
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
    vector::{Accumulate, accumulate_each},
};
use crate::{Error, ErrorKind};

/// The columns of a unit of work: a cache line.
const LINE: usize = 16;
/// The entry of rows that other ranks hold.
const ELSEWHERE: u32 = u32::MAX;

/// A prepared [`Embedding`].
pub(crate) struct EmbeddingKernel {
    embedding: Embedding,
    /// Adds a row to another.
    add: Accumulate,
    parts: Vec<()>,
}

/// Finds rows by their global numbers.
#[derive(Clone, Copy)]
pub(super) struct Finder<'a> {
    n_rows: usize,
    /// The local number of each row of the whole table; none if the rank holds all rows.
    places: Option<&'a [u32]>,
}

impl<'a> Finder<'a> {
    /// Returns the finder of the rows with these global numbers, below `vocabulary`. Uses `places`,
    /// of [`n_places`] elements.
    pub(super) fn new(numbers: &[i32], places: &'a mut [u32]) -> Self {
        if !places.is_empty() {
            note_places(numbers, places);
        }
        let places = Some(&*places).filter(|it| !it.is_empty());
        Self { n_rows: numbers.len(), places }
    }

    /// Returns the local number of a row, if the rank holds it.
    pub(super) fn find(&self, index: i32) -> Option<usize> {
        let index = usize::try_from(index).ok()?;
        match self.places {
            None => Some(index).filter(|it| *it < self.n_rows),
            Some(places) => places.get(index).filter(|it| **it != ELSEWHERE).map(|it| *it as usize),
        }
    }
}

impl Prepare for Embedding {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(EmbeddingKernel::new(self, threads.isa, threads.len()))
    }
}

impl CpuKernel for EmbeddingKernel {
    fn n_scratch(&self) -> usize {
        n_places(&self.embedding)
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let (inputs, result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.scratch, inputs, &result) }
    }
}

impl EmbeddingKernel {
    pub(crate) fn new(embedding: &Embedding, isa: Isa, n_threads: usize) -> Self {
        let add = accumulate_each(Combine::Sum, isa);
        Self { embedding: *embedding, add, parts: vec![(); n_threads] }
    }

    /// Runs the kernel. Inputs are indices, the table or the gradient of its rows, and the numbers
    /// of the rows.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    ///
    /// # Panics
    /// Panics if there is not enough scratch space.
    pub(crate) unsafe fn run(
        &mut self,
        scratch: &mut [f32],
        inputs: [Region; 3],
        result: &Region,
    ) -> Result<(), Error> {
        self.check(inputs, result)?;
        let Embedding { form, n_indices, rows, width, .. } = self.embedding;
        let [indices, table, numbers] = inputs;
        let n_places = self.n_scratch();
        // SAFETY: every pattern of bits is a number of either type.
        let places = unsafe { scratch[..n_places].align_to_mut::<u32>() }.1;
        // SAFETY: the input was checked to have a number for each row; nobody writes there.
        let numbers = unsafe { std::slice::from_raw_parts(numbers.pointer.cast(), rows) };
        let finder = Finder::new(numbers, places);
        // SAFETY: the input was checked to have these indices; nobody writes there.
        let indices = unsafe { std::slice::from_raw_parts(indices.pointer.cast(), n_indices) };
        let work = n_indices * width;
        match form {
            EmbeddingForm::Gather => parallel_for(&mut self.parts, n_indices, work, |(), range| {
                for (at, index) in indices[range.clone()].iter().enumerate() {
                    let to = result.at((range.start + at) * width);
                    match finder.find(*index) {
                        // SAFETY: the row is in the table, which was checked to have all rows; each
                        // row of the result is written once.
                        Some(row) => unsafe {
                            to.copy_from_nonoverlapping(table.at(row * width), width);
                        },
                        // SAFETY: as above.
                        None => unsafe { to.write_bytes(0, width) },
                    }
                }
            }),
            EmbeddingForm::ScatterAdd => {
                let (add, n_lines) = (self.add, width.div_ceil(LINE));
                let by_columns = n_lines >= self.parts.len();
                let n_units = if by_columns { n_lines } else { rows };
                parallel_for(&mut self.parts, n_units, work + rows * width, |(), units| {
                    let columns = units.start * LINE..width.min(units.end * LINE);
                    let cell = if by_columns { (0..rows, columns) } else { (units, 0..width) };
                    // SAFETY: as above; cells are different elements of the result.
                    unsafe { scatter_add((indices, finder), (&table, result), width, cell, add) };
                });
            }
        }
        Ok(())
    }

    fn check(&self, inputs: [Region; 3], result: &Region) -> Result<(), Error> {
        let Embedding { form, n_indices, rows, width, .. } = self.embedding;
        let (table, gathered) = (rows * width, n_indices * width);
        let (expected, n_result) = match form {
            EmbeddingForm::Gather => ([n_indices, table, rows], gathered),
            EmbeddingForm::ScatterAdd => ([n_indices, gathered, rows], table),
        };
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        for (number, (input, expected)) in inputs.iter().zip(expected).enumerate() {
            let found = input.n_elements;
            if found < expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        for number in [0, 2] {
            let found = inputs[number].dtype;
            if found != DType::I32 {
                return fault(format!("input {number}: expected elements of i32, found {found}"));
            }
        }
        if result.n_elements < n_result {
            let found = result.n_elements;
            return fault(format!("result: expected {n_result} elements, found {found}"));
        }
        Ok(())
    }
}

/// Returns the number of elements that a [`Finder`] needs: none if the rank holds all rows.
pub(super) const fn n_places(embedding: &Embedding) -> usize {
    if embedding.rows < embedding.vocabulary { embedding.vocabulary } else { 0 }
}

/// Stores the local number of each row of the whole table.
fn note_places(numbers: &[i32], places: &mut [u32]) {
    places.fill(ELSEWHERE);
    for (place, number) in (0..).zip(numbers) {
        let slot = usize::try_from(*number).ok().and_then(|it| places.get_mut(it));
        if let Some(slot) = slot {
            *slot = place;
        }
    }
}

/// Sums the gradients of some rows and columns of the table, in the order of the indices.
///
/// # Safety
/// Gradient and result have the elements that are needed; nobody else uses this cell of the result.
unsafe fn scatter_add(
    (indices, finder): (&[i32], Finder<'_>),
    (gradients, result): (&Region, &Region),
    width: usize,
    (rows, columns): (Range<usize>, Range<usize>),
    add: Accumulate,
) {
    for row in rows.clone() {
        let to = result.at(row * width + columns.start);
        // SAFETY: required of the caller.
        unsafe { to.write_bytes(0, columns.len()) };
    }
    for (at, index) in indices.iter().enumerate() {
        let Some(row) = finder.find(*index).filter(|it| rows.contains(it)) else { continue };
        let from = gradients.at(at * width + columns.start);
        // SAFETY: required of the caller.
        unsafe { add(result.at(row * width + columns.start), from, columns.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    /// Returns the rows that a rank holds: all, a block, or every second.
    fn numbers(dice: &mut Dice, vocabulary: usize) -> Vec<usize> {
        match dice.below(3) {
            0 => (0..vocabulary).collect(),
            1 => (vocabulary / 3..vocabulary * 2 / 3).collect(),
            _ => (0..vocabulary).skip(1).step_by(2).collect(),
        }
    }

    fn check(dice: &mut Dice) {
        let vocabulary = dice.pick(&[1, 7, 100, 3000]);
        let numbers = numbers(dice, vocabulary);
        let form = dice.pick(&[EmbeddingForm::Gather, EmbeddingForm::ScatterAdd]);
        let (n_indices, width) = (dice.pick(&[0, 1, 50, 700]), dice.pick(&[1, 5, 33, 128]));
        let rows = numbers.len();
        let embedding = Embedding { form, n_indices, rows, vocabulary, width };
        let mut kernel = EmbeddingKernel::new(&embedding, Isa::detect(), 1 + dice.below(3));
        // Some are outside of the table.
        let indices: Vec<i32> = (0..n_indices)
            .map(|_| i32::try_from(dice.below(vocabulary + 2)).unwrap() - 1)
            .collect();
        let (n_input, n_result) = match form {
            EmbeddingForm::Gather => (rows * width, n_indices * width),
            EmbeddingForm::ScatterAdd => (n_indices * width, rows * width),
        };
        let mut input = dice.buffer(n_input, DType::F32);
        let mut result = vec![f32::NAN; n_result];
        let mut words: Vec<f32> =
            indices.iter().map(|it| f32::from_bits(it.cast_unsigned())).collect();
        let mut places: Vec<f32> =
            numbers.iter().map(|it| f32::from_bits(u32::try_from(*it).unwrap())).collect();
        let inputs = [
            region(&mut words, DType::I32),
            region(&mut input, DType::F32),
            region(&mut places, DType::I32),
        ];
        let to = region(&mut result, DType::F32);
        let mut scratch = vec![0.0; kernel.n_scratch()];
        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { kernel.run(&mut scratch, inputs, &to) }.unwrap());
        let mut expected = vec![0.0; n_result];
        for (at, index) in indices.iter().enumerate() {
            let place = numbers.iter().position(|it| i32::try_from(*it) == Ok(*index));
            for (row, column) in
                place.into_iter().flat_map(|row| (0..width).map(move |it| (row, it)))
            {
                let (whole, one) = (row * width + column, at * width + column);
                match form {
                    EmbeddingForm::Gather => expected[one] = input[whole],
                    // In the same order, so that the bits are the same.
                    EmbeddingForm::ScatterAdd => expected[whole] += input[one],
                }
            }
        }
        assert_eq!(result, expected, "{embedding:?}");
    }

    #[test]
    fn random_embeddings_agree_with_plain_loops() {
        for seed in 0..300 {
            check(&mut Dice(seed));
        }
    }
}
