//! Fused reductions: a map whose blocks are combined before they leave the cache.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod combination;
mod shape;

use std::ops::Range;

use soybean_plan::{DType, Reduction, Strides};

use self::{combination::Combination, shape::TaskShape};
use super::{
    interpreter::{Interpreter, Scratch},
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    map::SHORT_ROW,
    parallel::{parallel_for, part_range},
    region::Region,
    space::{Space, offset},
};
use crate::{Error, ErrorKind};

/// The number of values that are added before the sum is added to another: sums of sums round less
/// than one long sum.
const N_SHORT_SUM: usize = 64;

/// A prepared [`Reduction`].
///
/// The dims of its space are ordered: those kept, those reduced, and last the innermost one, which
/// may be either. A task is one block of results (innermost dim kept) or one result (innermost dim
/// reduced). Its units are the rows or blocks that are combined. Short rows that are reduced are
/// joined with a kept dim, as if their elements were results: groups of these are combined last.
///
/// If there are few tasks, the units are split into a power of two of pieces. Neighbors are
/// combined pair by pair, then pairs of these. Threads can thus share the tasks, or their pieces,
/// and most pairs belong to one thread.
pub(crate) struct ReductionKernel {
    core: Core,
    parts: Vec<Part>,
}

/// The state that all threads read.
struct Core {
    interpreter: Interpreter,
    n_needed: Vec<usize>,
    n_results_needed: usize,
    combination: Combination,
    shape: TaskShape,
}

struct Part {
    scratch: Scratch,
    short: Vec<f32>,
    /// The results of pieces that wait for their neighbors; the first becomes the result of the
    /// task.
    totals: Vec<Vec<f32>>,
}

impl Prepare for Reduction {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(ReductionKernel::new(self, threads.isa, threads.len()))
    }
}

impl CpuKernel for ReductionKernel {
    fn n_scratch(&self) -> usize {
        let shape = &self.core.shape;
        let n_totals = shape.n_tasks() * shape.n_pieces * shape.width();
        if shares_pieces(shape, self.parts.len()) { n_totals } else { 0 }
    }

    fn supports_bf16(&self) -> bool {
        true
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let result = arguments.one_result()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.scratch, arguments.inputs, &result, arguments.scalars) }
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
        let is_kept = |dim: &usize| results[*dim] != 0;
        let (mut kept, reduced): (Vec<usize>, Vec<usize>) = (0..last).partition(is_kept);
        // The dims of a row: the innermost one, and the one whose results it has groups for.
        let is_grouped = !is_kept(&last) && space.extents[last] < SHORT_ROW && space.n_points() > 0;
        let grouped = kept.pop_if(|dim| is_grouped && may_join(&space, *dim, last));
        let row_dims: Vec<usize> = grouped.into_iter().chain([last]).collect();
        let order: Vec<usize> = kept.iter().chain(&reduced).chain(&row_dims).copied().collect();
        let picked = |from: &Vec<usize>, dims: &[usize]| dims.iter().map(|it| from[*it]).collect();
        let walk = Space {
            extents: picked(&space.extents, &order),
            strides: space.strides.iter().map(|it| picked(it, &order)).collect(),
        };
        let rows = if grouped.is_some() { walk.with_joined_rows() } else { walk.clone() };
        let row = row_dims.iter().map(|it| space.extents[*it]).product();
        let group = if grouped.is_some() { space.extents[last] } else { 1 };
        let interpreter = Interpreter::new(&map.program, rows, walk, isa);
        let block = interpreter.block / group * group;
        let shape = TaskShape {
            n_kept: kept.iter().map(|it| space.extents[*it]).product(),
            kept_strides: picked(&results, &kept),
            kept: picked(&space.extents, &kept),
            n_reduced: reduced.iter().map(|it| space.extents[*it]).product(),
            row,
            row_stride: results[row_dims[0]],
            is_row_kept: is_kept(&row_dims[0]),
            group,
            n_blocks: row.div_ceil(block),
            block,
            n_pieces: 1,
        };
        let shape = shape.in_pieces();
        let part = || Part {
            scratch: interpreter.scratch(),
            short: vec![0.0; shape.width()],
            totals: vec![vec![0.0; shape.width()]; 1 + shape.n_pieces.ilog2() as usize],
        };
        let parts = (0..n_threads).map(|_| part()).collect();
        let core = Core {
            n_results_needed: if map.extents.n_elements() == 0 {
                needed_if_empty(reduction)
            } else {
                n_needed[operands.len() - 1]
            },
            n_needed: n_needed[..operands.len() - 1].to_vec(),
            combination: Combination::new(reduction, isa),
            interpreter,
            shape,
        };
        Self { core, parts }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    ///
    /// # Panics
    /// Panics if there is not enough scratch space.
    pub(crate) unsafe fn run(
        &mut self,
        scratch: &mut [f32],
        inputs: &[Region],
        result: &Region,
        scalars: &[f32],
    ) -> Result<(), Error> {
        let scratch = &mut scratch[..self.n_scratch()];
        let Self { core: this, parts } = self;
        this.check(inputs, result)?;
        let (n_tasks, n_pieces) = (this.shape.n_tasks(), this.shape.n_pieces);
        let work = this.interpreter.space.n_points() * (this.interpreter.work() + 1);
        let begin = |part: &mut Part| {
            // SAFETY: the inputs were checked to have the elements that are needed; the caller has
            // exclusive access.
            unsafe { this.interpreter.begin(&mut part.scratch, inputs, scalars) };
        };
        if shares_pieces(&this.shape, parts.len()) {
            let width = this.shape.width();
            let n_parts = parts.len();
            let ranges = |part: usize| part_range(n_tasks * n_pieces, part, n_parts);
            let totals = Region {
                pointer: scratch.as_mut_ptr(),
                n_elements: scratch.len(),
                dtype: DType::F32,
            };
            parallel_for(parts, n_parts, work, |part, threads| {
                begin(part);
                for pieces in threads.map(ranges) {
                    // SAFETY: the scratch space holds the results of all pieces; threads have
                    // different ones.
                    unsafe { this.run_pieces(part, inputs, pieces, totals) };
                }
            });
            // SAFETY: as above; all pieces are computed.
            unsafe { this.join(n_parts, totals) };
            for (task, pieces) in scratch.chunks(n_pieces * width.max(1)).enumerate() {
                this.store(&pieces[..width], task, result);
            }
        } else {
            parallel_for(parts, n_tasks, work, |part, tasks| {
                begin(part);
                for task in tasks {
                    this.run_task(part, inputs, task);
                    this.store(&part.totals[0], task, result);
                }
            });
        }
        Ok(())
    }
}

impl Core {
    /// Combines all units of a task into the first total of the part.
    fn run_task(&self, part: &mut Part, inputs: &[Region], task: usize) {
        let each = self.combination.each;
        for piece in 0..self.shape.n_pieces {
            // The number of waiting pieces and pairs is the number of ones in the number of the
            // piece.
            let mut n_waiting = piece.count_ones() as usize;
            let mut total = std::mem::take(&mut part.totals[n_waiting]);
            self.run_piece(part, inputs, (task, piece), &mut total);
            part.totals[n_waiting] = total;
            for _ in 0..piece.trailing_ones() {
                let (before, from) = part.totals.split_at_mut(n_waiting);
                n_waiting -= 1;
                // SAFETY: all totals have one length.
                unsafe { each(before[n_waiting].as_mut_ptr(), from[0].as_ptr(), from[0].len()) };
            }
        }
    }

    /// Combines the units of each of these pieces, and pairs of which both are among them. There is
    /// one total for each piece; that of a pair is stored as that of its first piece.
    ///
    /// # Safety
    /// There is a total for each piece, and nobody else uses those of these pieces.
    unsafe fn run_pieces(
        &self,
        part: &mut Part,
        inputs: &[Region],
        pieces: Range<usize>,
        totals: Region,
    ) {
        let (n_pieces, width) = (self.shape.n_pieces, self.shape.width());
        for piece in pieces.clone() {
            // SAFETY: required of the caller.
            let total = unsafe { std::slice::from_raw_parts_mut(totals.at(piece * width), width) };
            self.run_piece(part, inputs, (piece / n_pieces, piece % n_pieces), total);
            let mut n = 1;
            while n < n_pieces
                && (piece + 1).is_multiple_of(2 * n)
                && piece + 1 >= pieces.start + 2 * n
            {
                // SAFETY: as above.
                unsafe { self.combine_pair(totals, piece + 1 - 2 * n, n) };
                n *= 2;
            }
        }
    }

    /// Combines the remaining pairs after this many threads shared pieces.
    ///
    /// # Safety
    /// There is a total for each piece, and nobody else uses them.
    unsafe fn join(&self, n_parts: usize, totals: Region) {
        let n_all = self.shape.n_tasks() * self.shape.n_pieces;
        let is_left = |pair: &Range<usize>| {
            (0..n_parts).all(|part| {
                let of_part = part_range(n_all, part, n_parts);
                pair.start < of_part.start || pair.end > of_part.end
            })
        };
        let sizes = (0..self.shape.n_pieces.ilog2()).map(|it| 1 << it);
        for n in sizes {
            for pair in (0..n_all).step_by(2 * n).map(|it| it..it + 2 * n).filter(is_left) {
                // SAFETY: required of the caller.
                unsafe { self.combine_pair(totals, pair.start, n) };
            }
        }
    }

    /// Combines the results of `n` pieces from the first on with those of the next `n`.
    ///
    /// # Safety
    /// There is a total for each piece, and nobody else uses these.
    unsafe fn combine_pair(&self, totals: Region, first: usize, n: usize) {
        let (width, each) = (self.shape.width(), self.combination.each);
        // SAFETY: required of the caller.
        unsafe { each(totals.at(first * width), totals.at((first + n) * width), width) };
    }

    /// Combines the units of a piece of a task: those of each short sum, then these sums.
    fn run_piece(
        &self,
        part: &mut Part,
        inputs: &[Region],
        (task, piece): (usize, usize),
        total: &mut [f32],
    ) {
        let (kept, at, n) = self.shape.task(task);
        let units = part_range(self.shape.n_units(), piece, self.shape.n_pieces);
        let Combination { identity, each, all, .. } = self.combination;
        total.fill(identity);
        let mut previous = usize::MAX;
        for (count, unit) in units.clone().enumerate() {
            if count % N_SHORT_SUM == 0 {
                part.short.fill(identity);
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
                unsafe { self.interpreter.begin_row(&mut part.scratch, inputs, number) };
                previous = number;
            }
            // SAFETY: as above; there are no targets.
            unsafe { self.interpreter.run_block(&mut part.scratch, inputs, (number, at, n)) };
            let values = self.interpreter.result(&part.scratch, 0);
            let accumulate = if self.shape.is_row_kept { each } else { all };
            // SAFETY: the block has `n` values; the accumulators are `n` if there is one for each,
            // else one.
            unsafe { accumulate(part.short.as_mut_ptr(), values, n) };
            if count % N_SHORT_SUM == N_SHORT_SUM - 1 || unit + 1 == units.end {
                // SAFETY: both have this length.
                unsafe { each(total.as_mut_ptr(), part.short.as_ptr(), total.len()) };
            }
        }
    }

    fn store(&self, total: &[f32], task: usize, result: &Region) {
        let (kept, at, n) = self.shape.task(task);
        let shape = &self.shape;
        let first = offset(&shape.kept, &shape.kept_strides, kept);
        let start = first + at / shape.group * shape.row_stride;
        for (step, values) in total[..n].chunks_exact(shape.group).enumerate() {
            let value = if shape.group == 1 { values[0] } else { self.combination.of(values) };
            // SAFETY: `check` has checked that the result has all elements of the kept dims; tasks
            // have different ones.
            unsafe { result.at(start + step * shape.row_stride).write(value) };
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
        self.interpreter.check_types(inputs)?;
        if self.combination.gives_integers && result.dtype != DType::I32 {
            return fault(format!("result: expected elements of i32, found {}", result.dtype));
        }
        let (expected, found) = (self.n_results_needed, result.n_elements);
        if found < expected {
            return fault(format!("result: expected {expected} elements, found {found}"));
        }
        Ok(())
    }
}

/// Returns whether rows of the innermost dim can be read as parts of longer ones, which join
/// another dim: each input is dense over both, or steps through one of them at most.
fn may_join(space: &Space, dim: usize, last: usize) -> bool {
    space.strides.iter().all(|strides| {
        let (outer, step) = (strides[dim], strides[last]);
        step == 0 || (step == 1 && (outer == 0 || outer == space.extents[last]))
    })
}

/// Returns true if there are too few tasks for all threads, so that they share the pieces of each.
/// The result of a piece is the same either way.
const fn shares_pieces(shape: &TaskShape, n_threads: usize) -> bool {
    n_threads > 1 && shape.n_tasks() < 2 * n_threads && shape.n_pieces > 1
}

/// Returns the number of elements of the result of a reduction without points: those of the kept
/// dims.
fn needed_if_empty(reduction: &Reduction) -> usize {
    let steps = reduction.map.extents.iter().zip(reduction.result.0);
    if steps.clone().any(|(extent, stride)| *extent == 0 && stride != 0) {
        return 0;
    }
    steps.map(|(extent, stride)| extent.saturating_sub(1) * stride).sum::<usize>() + 1
}

#[cfg(test)]
mod tests;
