//! Fused elementwise kernels.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::sync::atomic::{AtomicUsize, Ordering};

use soybean_plan::{DType, Map};

use super::{
    interpreter::{Interpreter, Scratch},
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    region::Region,
    space::Space,
    upcast::round,
    vector::{Accumulate, accumulate_non_finite},
};
use crate::{Error, ErrorKind};

/// Shorter rows are merged, and inputs that are not dense over them are copied first.
pub(crate) const SHORT_ROW: usize = 96;

/// A prepared [`Map`].
pub(crate) struct MapKernel {
    interpreter: Interpreter,
    parts: Vec<Scratch>,
    n_needed: Vec<usize>,
    /// A mark for each result that is an integer.
    gives_integers: Vec<bool>,
    is_dense: Vec<bool>,
    is_direct: Vec<bool>,
    sum_of_zeros: Accumulate,
}

/// Returns the rows of an interpreter: those of the space itself, or one long row if they are
/// short.
pub(crate) fn rows(space: &Space) -> Space {
    let is_short = space.extents.last().is_some_and(|row| *row < SHORT_ROW);
    if space.extents.len() == 1 || !is_short {
        return space.clone();
    }
    let stride = |strides: &Vec<usize>| vec![usize::from(strides.iter().any(|it| *it != 0))];
    Space { extents: vec![space.n_points()], strides: space.strides.iter().map(stride).collect() }
}

impl Prepare for Map {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(MapKernel::new(self, threads.isa, threads.len()))
    }
}

impl CpuKernel for MapKernel {
    fn supports_bf16(&self) -> bool {
        true
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let Arguments { inputs, results, scalars, .. } = arguments;
        // SAFETY: required of the caller.
        unsafe { self.run(inputs, results, scalars) }
    }

    unsafe fn launch_checked(
        &mut self,
        arguments: Arguments<'_>,
        before: &[Option<Region>],
    ) -> Result<Option<usize>, Error> {
        let Arguments { inputs, results, scalars, .. } = arguments;
        let check = FiniteCheck::new(before);
        // SAFETY: required of the caller.
        unsafe { self.run_blocks((inputs, results, scalars), Some(&check)) }?;
        Ok(check.first_non_finite())
    }
}

impl MapKernel {
    pub(crate) fn new(map: &Map, isa: Isa, n_threads: usize) -> Self {
        let space = Space::new(&map.extents, &map.inputs);
        let dense = map.extents.dense_strides();
        let joined_dense = |strides| Space::new(&map.extents, &[strides, dense]);
        let is_dense = |strides: &soybean_plan::Strides| {
            let both = joined_dense(*strides);
            both.strides[0] == both.strides[1]
        };
        let interpreter = Interpreter::new(&map.program, rows(&space), space.clone(), isa);
        Self {
            parts: (0..n_threads).map(|_| interpreter.scratch()).collect(),
            n_needed: (0..map.inputs.len()).map(|it| space.n_needed(it)).collect(),
            gives_integers: map.program.integer_results(),
            is_dense: map.inputs.iter().map(is_dense).collect(),
            is_direct: vec![false; map.program.results.len()],
            sum_of_zeros: accumulate_non_finite(isa),
            interpreter,
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(
        &mut self,
        inputs: &[Region],
        results: &[Region],
        scalars: &[f32],
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe { self.run_blocks((inputs, results, scalars), None) }
    }

    /// Runs the kernel. With a check, finds the first result that is not finite; where any of them
    /// is not, results are the elements before them, as far as these are known.
    ///
    /// # Safety
    /// As [`Self::run`].
    unsafe fn run_blocks(
        &mut self,
        (inputs, results, scalars): (&[Region], &[Region], &[f32]),
        check: Option<&FiniteCheck<'_>>,
    ) -> Result<(), Error> {
        self.check(inputs, results)?;
        let interpreter = &self.interpreter;
        let (is_direct, gives_integers) = (&self.is_direct[..], &self.gives_integers[..]);
        let sum_of_zeros = self.sum_of_zeros;
        let stored = Results { results, is_direct, gives_integers, sum_of_zeros, check };
        let row = interpreter.space.extents.last().copied().unwrap_or(1);
        let n_points = interpreter.space.n_points();
        if n_points == 0 {
            return Ok(());
        }
        let n_blocks = row.div_ceil(interpreter.block);
        let n_units = n_points / row * n_blocks;
        parallel_for(&mut self.parts, n_units, n_points * interpreter.work(), |scratch, units| {
            // SAFETY: the inputs were checked to have the elements that are needed; the caller has
            // exclusive access.
            unsafe { interpreter.begin(scratch, inputs, scalars) };
            let mut previous = usize::MAX;
            for unit in units {
                let (number, at) = (unit / n_blocks, unit % n_blocks * interpreter.block);
                if number != previous {
                    // SAFETY: as above.
                    unsafe { interpreter.begin_row(scratch, inputs, number) };
                    previous = number;
                }
                let n = interpreter.block.min(row - at);
                let place = number * row + at;
                for (index, result) in results.iter().enumerate() {
                    scratch.targets[index] = is_direct[index].then(|| result.at(place));
                }
                // SAFETY: as above; targets are within results, which overlap nothing if they are
                // direct.
                unsafe { interpreter.run_block(scratch, inputs, (number, at, n)) };
                let block = |index| interpreter.result(scratch, index).cast_const();
                // SAFETY: the blocks have `n` elements, and the results those of the space.
                unsafe { stored.store_block(block, place, n) };
            }
        });
        Ok(())
    }

    /// Checks the regions, and finds the results that can be computed in place.
    fn check(&mut self, inputs: &[Region], results: &[Region]) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let (n_inputs, n_results) = (self.n_needed.len(), self.gives_integers.len());
        if inputs.len() != n_inputs || results.len() != n_results {
            let found = (inputs.len(), results.len());
            return fault(format!(
                "expected {n_inputs} inputs and {n_results} results, found {} and {}",
                found.0, found.1
            ));
        }
        for (number, (input, expected)) in inputs.iter().zip(&self.n_needed).enumerate() {
            if input.n_elements < *expected {
                let found = input.n_elements;
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
        }
        self.interpreter.check_types(inputs)?;
        let n_points = self.interpreter.space.n_points();
        for (number, result) in results.iter().enumerate() {
            if result.n_elements < n_points {
                let found = result.n_elements;
                return fault(format!(
                    "result {number}: expected {n_points} elements, found {found}"
                ));
            }
            if results[..number].iter().any(|it| it.overlaps(result)) {
                return fault(format!("result {number}: expected memory of its own"));
            }
            let gives_integers = self.gives_integers[number];
            if gives_integers && result.dtype != DType::I32 {
                let found = result.dtype;
                return fault(format!("result {number}: expected elements of i32, found {found}"));
            }
            let mut is_direct = gives_integers || result.dtype == DType::F32;
            for (input, is_dense) in inputs.iter().zip(&self.is_dense) {
                if !input.overlaps(result) {
                    continue;
                }
                is_direct = false;
                let is_alike = input.dtype.bytes() == result.dtype.bytes();
                if !is_dense || !is_alike || input.pointer != result.pointer {
                    return fault(format!(
                        "result {number}: expected memory of its own or of a dense input"
                    ));
                }
            }
            self.is_direct[number] = is_direct;
        }
        Ok(())
    }
}

/// The results of a map, and what is known of them.
pub(super) struct Results<'a> {
    pub(super) results: &'a [Region],
    /// A mark for each result that is computed in place.
    pub(super) is_direct: &'a [bool],
    /// A mark for each result that is an integer.
    pub(super) gives_integers: &'a [bool],
    pub(super) sum_of_zeros: Accumulate,
    pub(super) check: Option<&'a FiniteCheck<'a>>,
}

/// The check that results are finite.
pub(super) struct FiniteCheck<'a> {
    /// For each result the region with its elements before, if it is known.
    before: &'a [Option<Region>],
    /// The least number of a result that is not finite.
    first: AtomicUsize,
}

impl<'a> FiniteCheck<'a> {
    /// Returns the check of results, before any of them is known.
    pub(super) const fn new(before: &'a [Option<Region>]) -> Self {
        Self { before, first: AtomicUsize::new(usize::MAX) }
    }

    /// Returns the number of the first result that was not finite.
    pub(super) fn first_non_finite(self) -> Option<usize> {
        Some(self.first.into_inner()).filter(|it| *it < usize::MAX)
    }
}

impl Results<'_> {
    /// Brings blocks of `n` elements to their places from point `place` on.
    ///
    /// # Safety
    /// `block` returns the block of a result, of `n` elements. It is its place, or apart from it.
    pub(super) unsafe fn store_block(
        &self,
        block: impl Fn(usize) -> *const f32,
        place: usize,
        n: usize,
    ) {
        let is_finite = |index: usize, at: usize, n: usize| {
            let mut sum = 0.0;
            // SAFETY: required of the caller.
            unsafe { (self.sum_of_zeros)(&raw mut sum, block(index).wrapping_add(at), n) };
            self.gives_integers[index] || sum == 0.0
        };
        let copy = |index: usize, from: *const f32, at: usize, n: usize| {
            // The bits of integers are stored unchanged, like numbers.
            let result = &self.results[index];
            let dtype = if self.gives_integers[index] { DType::F32 } else { result.dtype };
            // SAFETY: required of the caller.
            unsafe { store(from, result.address(place + at), n, dtype) };
        };
        let copy_all = |at: usize, n: usize| {
            let copied = (0..self.results.len()).filter(|it| !self.is_direct[*it]);
            copied.for_each(|it| copy(it, block(it).wrapping_add(at), at, n));
        };
        let bad = self.check.and_then(|check| {
            let bad = (0..self.results.len()).find(|it| !is_finite(*it, 0, n))?;
            check.first.fetch_min(bad, Ordering::Relaxed);
            Some(check)
        });
        let Some(check) = bad else { return copy_all(0, n) };
        for at in 0..n {
            if (0..self.results.len()).all(|it| is_finite(it, at, 1)) {
                copy_all(at, 1);
                continue;
            }
            for (index, before) in check.before.iter().enumerate() {
                let before = before.filter(|it| it.pointer != self.results[index].pointer);
                if let Some(before) = before {
                    copy(index, before.at(place + at).cast_const(), at, 1);
                }
            }
        }
    }
}

/// Copies numbers to a buffer of this type. Integers are truncated towards zero and saturate at
/// their bounds.
///
/// # Safety
/// Both have `n` elements and do not overlap.
unsafe fn store(from: *const f32, to: *mut u8, n: usize, dtype: DType) {
    match dtype {
        // SAFETY: required of the caller.
        DType::F32 => unsafe { to.cast::<f32>().copy_from_nonoverlapping(from, n) },
        // SAFETY: as above.
        DType::Bf16 => unsafe { round(from, to.cast(), n) },
        // SAFETY: as above.
        DType::I32 => unsafe { cut_off(from, to.cast(), n) },
    }
}

/// # Safety
/// As [`store`].
unsafe fn cut_off(from: *const f32, to: *mut i32, n: usize) {
    // SAFETY: required of the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    // SAFETY: as above.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    #[expect(clippy::cast_possible_truncation, reason = "cut off")]
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from as i32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{
        interpreter::element,
        random_data::{Dice, in_pool, region, values},
    };

    fn check(dice: &mut Dice) {
        let (n_inputs, n_scalars, n_results) = (dice.below(4), dice.below(3), 1 + dice.below(3));
        let extents = dice.shape();
        let strides: Vec<_> = (0..n_inputs).map(|_| dice.strides(&extents)).collect();
        let program = dice.program(n_inputs, n_scalars, n_results);
        let map = Map { extents, inputs: strides.into(), program };
        let isa = dice.pick(&Isa::all());
        let mut kernel = MapKernel::new(&map, isa, 1 + dice.below(3));
        let scalars: Vec<f32> = (0..n_scalars).map(|_| dice.float()).collect();
        let all_types = [DType::F32, DType::F32, DType::Bf16, DType::I32];
        let types: Vec<DType> = (0..n_inputs).map(|_| dice.pick(&all_types)).collect();
        let mut inputs: Vec<(Vec<f32>, DType)> = types
            .iter()
            .zip(&kernel.n_needed)
            .map(|(dtype, n)| (dice.buffer(*n, *dtype), *dtype))
            .collect();
        let expected = values(&map, &inputs, &scalars);
        let n_points = extents.n_elements();
        let mut results = vec![vec![f32::NAN; n_points]; n_results];
        let mut regions: Vec<Region> =
            results.iter_mut().map(|it| region(it, dice.pick(&all_types))).collect();
        let input_regions: Vec<Region> =
            inputs.iter_mut().map(|it| region(&mut it.0, it.1)).collect();
        // If an input is dense, its buffer may be that of a result.
        let reused =
            (0..n_inputs).find(|it| kernel.is_dense[*it] && inputs[*it].0.len() == n_points);
        if let Some(input) = reused.filter(|_| dice.below(2) == 0) {
            regions[n_results - 1] = input_regions[input];
        }
        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { kernel.run(&input_regions, &regions, &scalars) }.unwrap());
        for (point, expected) in expected.iter().enumerate() {
            for (result, expected) in regions.iter().zip(expected) {
                // SAFETY: each result has the elements of the space.
                let found = f64::from(unsafe { element(result, point) });
                // Programs are short, and their values are below 1e4: some 20 roundings of single
                // precision.
                let tolerance = 2e-6 * expected.abs().max(100.0);
                let is_near = match result.dtype {
                    DType::F32 => (found - expected).abs() <= tolerance,
                    DType::Bf16 => (found - expected).abs() <= tolerance + expected.abs() / 256.0,
                    DType::I32 => {
                        let bounds = [expected - tolerance, expected + tolerance];
                        bounds.map(f64::trunc).contains(&found)
                    }
                };
                assert!(is_near, "{map:?} {isa:?} at {point}: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn random_maps_agree_with_plain_loops() {
        for seed in 0..600 {
            check(&mut Dice(seed));
        }
    }
}
