//! Updates of the rows of embedding tables that a batch looked up.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{Combine, DType, EmbeddingUpdate, Strides};

use super::{
    embedding::{Finder, n_places},
    interpreter::{Interpreter, Scratch},
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    map::{FiniteCheck, Results},
    parallel::parallel_for,
    region::Region,
    space::Space,
    vector::{Accumulate, accumulate_each, accumulate_non_finite},
};
use crate::{Error, ErrorKind};

/// A prepared [`EmbeddingUpdate`].
pub(crate) struct EmbeddingUpdateKernel {
    update: EmbeddingUpdate,
    /// The program over the rows of the table.
    interpreter: Interpreter,
    /// Adds a row to another.
    add: Accumulate,
    sum_of_zeros: Accumulate,
    /// Marks of results that are computed in place, of which there are none.
    is_direct: Vec<bool>,
    gives_integers: Vec<bool>,
    parts: Vec<Part>,
}

/// The memory of one thread.
struct Part {
    scratch: Scratch,
    /// The gradient of a row.
    sum: Vec<f32>,
    /// The inputs of the map, of which `sum` is the first.
    inputs: Vec<Region>,
}

/// The positions of each row among the indices, in order. Positions are counted from 1; 0 is none.
struct Positions<'a> {
    indices: &'a [i32],
    finder: Finder<'a>,
    /// The first position of each row that has any.
    first: &'a [u32],
    /// The next position of the same row.
    next: &'a [u32],
}

impl<'a> Positions<'a> {
    fn new(
        indices: &'a [i32],
        finder: Finder<'a>,
        first: &'a mut [u32],
        next: &'a mut [u32],
    ) -> Self {
        // Rows without positions are never read.
        for row in indices.iter().filter_map(|it| finder.find(*it)) {
            first[row] = 0;
        }
        let mut position = u32::try_from(indices.len()).expect("numbers of indices fit into i32");
        for (index, next) in indices.iter().zip(&mut *next).rev() {
            if let Some(row) = finder.find(*index) {
                *next = std::mem::replace(&mut first[row], position);
            }
            position -= 1;
        }
        Self { indices, finder, first, next }
    }

    /// Returns the row whose first index is at this place, counted from 0.
    fn row_that_begins(&self, place: usize) -> Option<usize> {
        let row = self.finder.find(self.indices[place])?;
        (self.first[row] as usize == place + 1).then_some(row)
    }

    /// Returns the places of the indices of a row, counted from 0.
    fn of(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let place = |position: u32| (position as usize).checked_sub(1);
        std::iter::successors(place(self.first[row]), move |it| place(self.next[*it]))
    }
}

impl Prepare for EmbeddingUpdate {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(EmbeddingUpdateKernel::new(self, threads.isa, threads.len()))
    }
}

impl CpuKernel for EmbeddingUpdateKernel {
    fn n_scratch(&self) -> usize {
        let gradient = self.update.gradient();
        n_places(&gradient) + gradient.rows + gradient.n_indices
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe { self.run(arguments, None) }
    }

    unsafe fn launch_checked(
        &mut self,
        arguments: Arguments<'_>,
        before: &[Option<Region>],
    ) -> Result<Option<usize>, Error> {
        let check = FiniteCheck::new(before);
        // SAFETY: required of the caller.
        unsafe { self.run(arguments, Some(&check)) }?;
        Ok(check.first_non_finite())
    }
}

impl EmbeddingUpdateKernel {
    fn new(update: &EmbeddingUpdate, isa: Isa, n_threads: usize) -> Self {
        let (map, width) = (&update.map, update.map.extents[1]);
        let dense = map.extents.dense_strides();
        let strides = |(at, it): (usize, &Strides)| match at {
            0 => vec![0, 1],
            _ if *it == dense => vec![width, 1],
            _ => vec![0, 0],
        };
        let strides = map.inputs.iter().enumerate().map(strides).collect();
        let space = Space { extents: map.extents.to_vec(), strides };
        let interpreter = Interpreter::new(&map.program, space.clone(), space, isa);
        let part = |_| Part {
            scratch: interpreter.scratch(),
            sum: vec![0.0; width],
            inputs: Vec::with_capacity(map.inputs.len()),
        };
        Self {
            parts: (0..n_threads).map(part).collect(),
            interpreter,
            add: accumulate_each(Combine::Sum, isa),
            sum_of_zeros: accumulate_non_finite(isa),
            is_direct: vec![false; map.program.results.len()],
            gives_integers: map.program.integer_results(),
            update: update.clone(),
        }
    }

    /// Runs the kernel, as maps run with a check.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    unsafe fn run(
        &mut self,
        arguments: Arguments<'_>,
        check: Option<&FiniteCheck<'_>>,
    ) -> Result<(), Error> {
        let Arguments { inputs, results, scalars, scratch, .. } = arguments;
        self.check(inputs, results)?;
        let gradient = self.update.gradient();
        let (width, n_indices) = (gradient.width, gradient.n_indices);
        let (own, of_map) = inputs.split_at(EmbeddingUpdate::N_OWN_INPUTS);
        // SAFETY: the input was checked to have these indices; nobody writes there.
        let indices = unsafe { std::slice::from_raw_parts(own[0].pointer.cast(), n_indices) };
        // SAFETY: the input was checked to have a number for each row; nobody writes there.
        let numbers = unsafe { std::slice::from_raw_parts(own[2].pointer.cast(), gradient.rows) };
        // SAFETY: every pattern of bits is a number of either type.
        let scratch = unsafe { scratch.align_to_mut::<u32>() }.1;
        let (places, scratch) = scratch.split_at_mut(n_places(&gradient));
        let (first, next) = scratch.split_at_mut(gradient.rows);
        let finder = Finder::new(numbers, places);
        let positions = Positions::new(indices, finder, first, &mut next[..n_indices]);
        let (interpreter, add, gradients) = (&self.interpreter, self.add, own[1]);
        let (is_direct, gives_integers) = (&self.is_direct[..], &self.gives_integers[..]);
        let sum_of_zeros = self.sum_of_zeros;
        let stored = Results { results, is_direct, gives_integers, sum_of_zeros, check };
        let work = n_indices * width * interpreter.work();
        parallel_for(&mut self.parts, n_indices, work, |part, units| {
            let Part { scratch, sum, inputs } = part;
            let (pointer, n_elements, dtype) = (sum.as_mut_ptr(), width, DType::F32);
            inputs.clear();
            inputs.push(Region { pointer, n_elements, dtype });
            inputs.extend_from_slice(of_map);
            // SAFETY: the inputs were checked to have the elements that are needed; the caller has
            // exclusive access.
            unsafe { interpreter.begin(scratch, inputs, scalars) };
            for row in units.filter_map(|it| positions.row_that_begins(it)) {
                sum.fill(0.0);
                for place in positions.of(row) {
                    // SAFETY: the input was checked to have a gradient for each index.
                    unsafe { add(pointer, gradients.at(place * width), width) };
                }
                // SAFETY: as above; the finder returns rows of the table.
                unsafe { interpreter.begin_row(scratch, inputs, row) };
                for at in (0..width).step_by(interpreter.block) {
                    let n = interpreter.block.min(width - at);
                    // SAFETY: as above; results stay in scratch memory.
                    unsafe { interpreter.run_block(scratch, inputs, (row, at, n)) };
                    let block = |index| interpreter.result(scratch, index).cast_const();
                    // SAFETY: the blocks have `n` elements, and one thread has the row.
                    unsafe { stored.store_block(block, row * width + at, n) };
                }
            }
        });
        Ok(())
    }

    fn check(&self, inputs: &[Region], results: &[Region]) -> Result<(), Error> {
        let gradient = self.update.gradient();
        let (map, n_indices) = (&self.update.map, gradient.n_indices);
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let n_inputs = self.update.input(map.inputs.len());
        if (inputs.len(), results.len()) != (n_inputs, map.program.results.len()) {
            let (n, n_results) = (inputs.len(), results.len());
            return fault(format!(
                "expected {n_inputs} inputs, found {n}, and {n_results} results"
            ));
        }
        let own = [n_indices, n_indices * gradient.width, gradient.rows];
        let dense = map.extents.dense_strides();
        let of_map = map.inputs[1..].iter();
        let of_map = of_map.map(|it| if *it == dense { map.extents.n_elements() } else { 1 });
        for (number, (input, expected)) in
            inputs.iter().zip(own.into_iter().chain(of_map)).enumerate()
        {
            let found = input.n_elements;
            if found < expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            let expected = if number == 0 || number == 2 { DType::I32 } else { DType::F32 };
            if input.dtype != expected {
                let found = input.dtype;
                return fault(format!(
                    "input {number}: expected elements of {expected}, found {found}"
                ));
            }
        }
        for (number, (result, input)) in results.iter().zip(&inputs[own.len()..]).enumerate() {
            if (result.pointer, result.n_elements) != (input.pointer, input.n_elements) {
                return fault(format!("result {number}: expected the memory of its value before"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{KernelDescriptor, Map, Shape};

    use super::*;
    use crate::cpu::random_data::{Dice, in_pool, region};

    fn check(dice: &mut Dice) {
        let vocabulary = dice.pick(&[1, 7, 100, 300]);
        let numbers: Vec<usize> = match dice.below(3) {
            0 => (0..vocabulary).collect(),
            1 => (vocabulary / 3..vocabulary * 2 / 3).collect(),
            _ => (0..vocabulary).skip(1).step_by(2).collect(),
        };
        let (n_indices, width) = (dice.pick(&[0, 1, 50, 700]), dice.pick(&[1, 5, 33, 128, 1100]));
        let (n_tables, n_results) = dice.pick(&[(1, 1), (2, 1), (2, 2)]);
        let rows = numbers.len();
        let extents = Shape::new(&[rows, width]);
        // The last input is one number.
        let mut strides = vec![extents.dense_strides(); 1 + n_tables];
        strides.push(Strides::default());
        let program = dice.program(strides.len(), 1, n_results);
        let map = Map { extents, inputs: strides.into(), program };
        let update = EmbeddingUpdate { n_indices, vocabulary, map };
        // Some are outside of the table.
        let indices: Vec<i32> = (0..n_indices)
            .map(|_| i32::try_from(dice.below(vocabulary + 2)).unwrap() - 1)
            .collect();
        let bits = |it: i32| f32::from_bits(it.cast_unsigned());
        let mut words: Vec<f32> = indices.iter().map(|it| bits(*it)).collect();
        let mut places: Vec<f32> =
            numbers.iter().map(|it| bits(i32::try_from(*it).unwrap())).collect();
        let mut gradients = dice.buffer(n_indices * width, DType::F32);
        let mut of_map: Vec<Vec<f32>> =
            (0..n_tables).map(|_| dice.buffer(rows * width, DType::F32)).collect();
        of_map.push(dice.buffer(1, DType::F32));
        let scalars = [dice.float()];
        let wide = |it: &Vec<f32>| it.iter().map(|it| f64::from(*it)).collect::<Vec<f64>>();
        let mut as_numbers = vec![
            indices.iter().map(|it| f64::from(*it)).collect(),
            wide(&gradients),
            numbers.iter().map(|it| *it as f64).collect(),
        ];
        as_numbers.extend(of_map.iter().map(wide));
        let as_numbers: Vec<&[f64]> = as_numbers.iter().map(|it| &it[..]).collect();
        let expected = update.evaluate(&as_numbers, &[f64::from(scalars[0])]);
        let mut inputs = vec![
            region(&mut words, DType::I32),
            region(&mut gradients, DType::F32),
            region(&mut places, DType::I32),
        ];
        inputs.extend(of_map.iter_mut().map(|it| region(it, DType::F32)));
        let results: Vec<Region> = inputs[3..][..n_results].to_vec();
        let mut kernel = EmbeddingUpdateKernel::new(&update, Isa::detect(), 1 + dice.below(3));
        let mut scratch = vec![f32::NAN; kernel.n_scratch()];
        let arguments = Arguments {
            inputs: &inputs,
            results: &results,
            scalars: &scalars,
            workspaces: &mut [],
            scratch: &mut scratch,
        };
        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { kernel.launch(arguments) }.unwrap());
        for (found, expected) in of_map.iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                // Sums of up to 700 numbers, and some 20 roundings of numbers below 1e4.
                let tolerance = 1e-5 * expected.abs().max(100.0);
                assert!((f64::from(*found) - expected).abs() <= tolerance, "{update:?}");
            }
        }
    }

    #[test]
    fn random_updates_agree_with_plain_loops() {
        for seed in 0..300 {
            check(&mut Dice(seed));
        }
    }
}
