//! Fused reductions: a map whose blocks are combined before they leave the cache.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{Combine, Reduction, Strides};

use super::{
    engine::{Engine, Region, Scratch},
    isa::Isa,
    share::share,
    space::{Space, offset},
    vector::{Accumulate, accumulate_all, accumulate_each},
};
use crate::{Error, ErrorKind};

/// This many values are added before the sum is added to another: sums of sums round less than one long sum.
const N_SHORT_SUM: usize = 64;

/// A [`Reduction`] made ready.
///
/// The dims of its space are ordered: those kept, those reduced, and as the last the innermost one, which may be either. A task is one
/// block of results (innermost dim kept) or one result (innermost dim reduced); its units are the rows or blocks that are combined.
pub(crate) struct ReductionKernel {
    core: Core,
    parts: Vec<Part>,
}

/// What all threads read.
struct Core {
    engine: Engine,
    n_needed: Vec<usize>,
    n_results_needed: usize,
    combine: Combine,
    each: Accumulate,
    all: Accumulate,
    shape: Shape,
}

/// The numbers that say which point is whose.
struct Shape {
    kept: Vec<usize>,
    kept_strides: Vec<usize>,
    n_kept: usize,
    n_reduced: usize,
    row: usize,
    row_stride: usize,
    is_row_kept: bool,
    n_blocks: usize,
    block: usize,
}

struct Part {
    scratch: Scratch,
    short: Vec<f32>,
    total: Vec<f32>,
    /// The totals of all tasks, where threads share the units of each.
    totals: Vec<f32>,
}

impl Shape {
    const fn n_tasks(&self) -> usize {
        if self.is_row_kept { self.n_kept * self.n_blocks } else { self.n_kept }
    }

    const fn n_units(&self) -> usize {
        if self.is_row_kept { self.n_reduced } else { self.n_reduced * self.n_blocks }
    }

    /// The most results of a task.
    fn width(&self) -> usize {
        if self.is_row_kept { self.block.min(self.row) } else { 1 }
    }

    /// The kept point and the position in the row where a task begins, and its number of results.
    fn task(&self, task: usize) -> (usize, usize, usize) {
        if !self.is_row_kept {
            return (task, 0, 1);
        }
        let at = task % self.n_blocks * self.block;
        (task / self.n_blocks, at, self.block.min(self.row - at))
    }
}

impl ReductionKernel {
    pub(crate) fn new(reduction: &Reduction, isa: Isa, n_threads: usize) -> Self {
        let map = &reduction.map;
        let operands: Vec<Strides> = map.inputs.iter().copied().chain([reduction.result]).collect();
        let mut space = Space::new(&map.extents, &operands);
        let n_needed: Vec<usize> = (0..operands.len()).map(|it| space.n_needed(it)).collect();
        let results = space.strides.pop().expect("the result is an operand");
        let last = space.extents.len() - 1;
        let kept: Vec<usize> = (0..last).filter(|dim| results[*dim] != 0).collect();
        let reduced = (0..last).filter(|dim| results[*dim] == 0);
        let order: Vec<usize> = kept.iter().copied().chain(reduced).chain([last]).collect();
        let picked = |from: &Vec<usize>, dims: &[usize]| dims.iter().map(|it| from[*it]).collect();
        let extents: Vec<usize> = picked(&space.extents, &order);
        let strides = space.strides.iter().map(|it| picked(it, &order)).collect();
        let row = extents[last];
        let n_reduced = extents[kept.len()..last].iter().product();
        let rows = Space { extents, strides };
        let engine = Engine::new(&map.program, rows.clone(), rows, isa);
        let shape = Shape {
            n_kept: kept.iter().map(|it| space.extents[*it]).product(),
            kept_strides: picked(&results, &kept),
            kept: picked(&space.extents, &kept),
            n_reduced,
            row,
            row_stride: results[last],
            is_row_kept: results[last] != 0,
            n_blocks: row.div_ceil(engine.block),
            block: engine.block,
        };
        let n_totals =
            if shares_units(&shape, n_threads) { shape.n_tasks() * shape.width() } else { 0 };
        let part = || Part {
            scratch: engine.scratch(),
            short: vec![0.0; shape.width()],
            total: vec![0.0; shape.width()],
            totals: vec![0.0; n_totals],
        };
        let parts = (0..n_threads).map(|_| part()).collect();
        let core = Core {
            n_results_needed: if map.extents.n_elements() == 0 {
                needed_if_empty(reduction)
            } else {
                n_needed[operands.len() - 1]
            },
            n_needed: n_needed[..operands.len() - 1].to_vec(),
            combine: reduction.combine,
            each: accumulate_each(reduction.combine, isa),
            all: accumulate_all(reduction.combine, isa),
            engine,
            shape,
        };
        Self { core, parts }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(
        &mut self,
        inputs: &[Region],
        result: &Region,
        scalars: &[f32],
    ) -> Result<(), Error> {
        let Self { core: this, parts } = self;
        this.check(inputs, result)?;
        let (n_tasks, n_units) = (this.shape.n_tasks(), this.shape.n_units());
        let work = this.engine.space.n_points() * (this.engine.work() + 1);
        let begin = |part: &mut Part| {
            // SAFETY: the inputs were checked to have the elements that are needed; the caller has them alone.
            unsafe { this.engine.begin(&mut part.scratch, inputs, scalars) };
        };
        if shares_units(&this.shape, parts.len()) {
            // Parts that get no units contribute nothing.
            let identity = this.identity();
            parts.iter_mut().for_each(|part| part.totals.fill(identity));
            share(parts, n_units, work, |part, units| {
                begin(part);
                for task in 0..n_tasks {
                    this.run_task(part, inputs, task, units.clone());
                    let at = task * this.shape.width();
                    part.totals[at..at + part.total.len()].copy_from_slice(&part.total);
                }
            });
            this.join(parts, result);
        } else {
            share(parts, n_tasks, work, |part, tasks| {
                begin(part);
                for task in tasks {
                    this.run_task(part, inputs, task, 0..n_units);
                    this.store(&part.total, task, result);
                }
            });
        }
        Ok(())
    }
}

impl Core {
    const fn identity(&self) -> f32 {
        match self.combine {
            Combine::Sum => 0.0,
            Combine::Max => f32::NEG_INFINITY,
        }
    }

    /// Combines these units of a task into the part's total.
    fn run_task(&self, part: &mut Part, inputs: &[Region], task: usize, units: Range<usize>) {
        let (kept, at, n) = self.shape.task(task);
        part.total.fill(self.identity());
        let mut previous = usize::MAX;
        for (count, unit) in units.clone().enumerate() {
            if count % N_SHORT_SUM == 0 {
                part.short.fill(self.identity());
            }
            let (reduced, at, n) = if self.shape.is_row_kept {
                (unit, at, n)
            } else {
                let at = unit % self.shape.n_blocks * self.shape.block;
                (unit / self.shape.n_blocks, at, self.shape.block.min(self.shape.row - at))
            };
            let number = kept * self.shape.n_reduced + reduced;
            if number != previous {
                // SAFETY: `run` has checked the inputs and called `begin`.
                unsafe { self.engine.begin_row(&mut part.scratch, inputs, number) };
                previous = number;
            }
            // SAFETY: as above; there are no targets.
            unsafe { self.engine.run_block(&mut part.scratch, inputs, (number, at, n)) };
            let values = self.engine.result(&part.scratch, 0);
            let accumulate = if self.shape.is_row_kept { self.each } else { self.all };
            // SAFETY: the block has `n` values; the accumulators are `n` if there is one for each, else one.
            unsafe { accumulate(part.short.as_mut_ptr(), values, n) };
            if count % N_SHORT_SUM == N_SHORT_SUM - 1 || unit + 1 == units.end {
                let n = part.total.len();
                // SAFETY: both have this length.
                unsafe { (self.each)(part.total.as_mut_ptr(), part.short.as_ptr(), n) };
            }
        }
    }

    /// Combines the totals of all parts, in their order.
    fn join(&self, parts: &mut [Part], result: &Region) {
        let (first, others) = parts.split_first_mut().expect("a rank has a thread");
        for part in others {
            let n = first.totals.len();
            // SAFETY: all parts have totals of one length.
            unsafe { (self.each)(first.totals.as_mut_ptr(), part.totals.as_ptr(), n) };
        }
        for (task, total) in first.totals.chunks(self.shape.width().max(1)).enumerate() {
            self.store(total, task, result);
        }
    }

    fn store(&self, total: &[f32], task: usize, result: &Region) {
        let (kept, at, n) = self.shape.task(task);
        let start = offset(&self.shape.kept, &self.shape.kept_strides, kept);
        for (step, value) in total[..n].iter().enumerate() {
            let place = start + (at + step) * self.shape.row_stride;
            // SAFETY: `check` has found the result to have all elements of the kept dims; tasks have different ones.
            unsafe { result.at(place).write(*value) };
        }
    }

    fn check(&self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        if inputs.len() != self.n_needed.len() {
            let (expected, found) = (self.n_needed.len(), inputs.len());
            return fault(format!("expected {expected} inputs, found {found}"));
        }
        for (number, (input, expected)) in inputs.iter().zip(&self.n_needed).enumerate() {
            let found = input.n_elements;
            if found < *expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        let (expected, found) = (self.n_results_needed, result.n_elements);
        if found < expected {
            return fault(format!("result: expected {expected} elements, found {found}"));
        }
        Ok(())
    }
}

/// Whether there are too few tasks for all threads, so that they share the units of each.
const fn shares_units(shape: &Shape, n_threads: usize) -> bool {
    n_threads > 1 && shape.n_tasks() < 2 * n_threads && shape.n_units() > 1
}

/// The elements of the result of a reduction without points: those of the kept dims.
fn needed_if_empty(reduction: &Reduction) -> usize {
    let steps = reduction.map.extents.iter().zip(reduction.result.0);
    if steps.clone().any(|(extent, stride)| *extent == 0 && stride != 0) {
        return 0;
    }
    steps.map(|(extent, stride)| extent.saturating_sub(1) * stride).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, MAX_RANK, Map};

    use super::*;
    use crate::cpu::oracle::{Dice, combined, in_pool, place, points, region, values};

    fn check(dice: &mut Dice, extents: soybean_plan::Shape) {
        let (n_inputs, n_scalars) = (1 + dice.below(2), dice.below(2));
        let strides: Vec<_> = (0..n_inputs).map(|_| dice.strides(&extents)).collect();
        let program = dice.program(n_inputs, n_scalars, 1);
        let map = Map { extents, inputs: strides.into(), program };
        let mut result = [0; MAX_RANK];
        let mut n_results = 1;
        for dim in (0..extents.len()).rev().filter(|_| dice.below(2) == 0) {
            result[dim] = n_results;
            n_results *= extents[dim];
        }
        let combine = dice.pick(&[Combine::Sum, Combine::Max]);
        let reduction = Reduction { map, combine, result: Strides(result) };
        let isa = dice.pick(&Isa::all());
        let mut kernel = ReductionKernel::new(&reduction, isa, 1 + dice.below(3));
        let scalars: Vec<f32> = (0..n_scalars).map(|_| dice.float()).collect();
        let mut inputs: Vec<(Vec<f32>, DType)> = kernel
            .core
            .n_needed
            .iter()
            .map(|n| (dice.buffer(*n, DType::F32), DType::F32))
            .collect();
        let start = match combine {
            Combine::Sum => 0.0,
            Combine::Max => f64::NEG_INFINITY,
        };
        let mut expected = vec![(start, 0.0); n_results];
        let all = values(&reduction.map, &inputs, &scalars);
        for (point, value) in points(&extents).iter().zip(all) {
            let (sum, size) = &mut expected[place(point, &reduction.result)];
            *sum = combined(combine, *sum, value[0]);
            *size += value[0].abs();
        }
        let mut found = vec![f32::NAN; n_results];
        let regions: Vec<Region> = inputs.iter_mut().map(|it| region(&mut it.0, it.1)).collect();
        let to = region(&mut found, DType::F32);

        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { kernel.run(&regions, &to, &scalars) }.unwrap());
        for (found, (expected, size)) in found.iter().zip(expected) {
            let error = (f64::from(*found) - expected).abs();
            // Sums of up to 40,000 terms in short sums: below 2e-6 of the sum of sizes; the map's own error as in its tests.
            assert!(
                error <= 2e-6 * size + 2e-4 || f64::from(*found) == expected,
                "{reduction:?}: {found}, not {expected}"
            );
        }
    }

    #[test]
    fn random_reductions_agree_with_plain_loops() {
        for seed in 0..600 {
            let mut dice = Dice(seed);
            let extents = dice.shape();
            check(&mut dice, extents);
        }
    }

    #[test]
    fn long_reductions_are_shared_and_agree_with_plain_loops() {
        for seed in 0..30 {
            let mut dice = Dice(seed);
            let extents = dice.pick(&[&[100_000][..], &[700, 130], &[3, 40_000], &[2, 300, 200]]);
            check(&mut dice, soybean_plan::Shape::new(extents));
        }
    }

    #[test]
    fn nothing_combines_to_the_identity() {
        let program = soybean_plan::ScalarProgram {
            instructions: vec![soybean_plan::Instruction::Input(0)].into(),
            results: vec![0].into(),
        };
        let extents = soybean_plan::Shape::new(&[2, 0]);
        let map = Map { extents, inputs: vec![Strides::new(&[0, 1])].into(), program };
        let reduction = Reduction { map, combine: Combine::Max, result: Strides::new(&[1, 0]) };
        let mut kernel = ReductionKernel::new(&reduction, Isa::detect(), 1);
        let mut found = [0.0; 2];
        let (input, to) = (region(&mut [], DType::F32), region(&mut found, DType::F32));
        // SAFETY: the buffers are this test's.
        unsafe { kernel.run(&[input], &to, &[]) }.unwrap();
        assert_eq!(found, [f32::NEG_INFINITY; 2]);
    }
}
