//! Interpreter of scalar programs, block by block. Inputs are read in place if possible.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers and ranks share")]

use soybean_plan::{DType, ScalarProgram, bf16};

use super::{
    isa::Isa,
    loop_program::{Granularity, LoopProgram, Operation, Uniform},
    region::Region,
    repeat::{Repeat, repeat},
    space::{Space, offset},
};
use crate::{Error, ErrorKind};

/// The access of an input within a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowAccess {
    /// One element for the whole row.
    Same,
    /// Contiguous elements.
    Dense,
    /// Any other order; elements are copied first.
    Scattered,
}

/// A scalar program over rows: the last dim of a space is the row, the others number the rows.
#[derive(Debug)]
pub(crate) struct Interpreter {
    program: LoopProgram,
    /// The space whose last dim is a row.
    pub(crate) space: Space,
    accesses: Vec<RowAccess>,
    /// A mark for each input whose elements are read as integers.
    is_integer: Vec<bool>,
    /// The space in which scattered inputs are found; rows may merge several of its dims.
    walk: Space,
    repeat: Repeat,
    /// The number of elements that are computed at once.
    pub(crate) block: usize,
}

/// The memory of one thread for one interpreter.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The memory that the pointers refer to.
    _memory: Vec<f32>,
    slots: Vec<*mut f32>,
    starts: Vec<usize>,
    /// The address where the next block of each result is computed in place; none if it is left in
    /// scratch memory.
    pub(crate) targets: Vec<Option<*mut f32>>,
}

// SAFETY: the pointers refer to `_memory`, or are set before each use.
unsafe impl Send for Scratch {}

/// The elements of all blocks of a program, which together should stay in the first-level cache.
const CACHE_ELEMENTS: usize = 8 * 1024;
/// Blocks begin at multiples of a cache line.
pub(super) const LINE: usize = 16;

impl Interpreter {
    /// Builds an interpreter over `rows`, a space with one operand for each input. Its last dim may
    /// join the last dims of `walk`, in which scattered inputs are found.
    pub(crate) fn new(program: &ScalarProgram, rows: Space, walk: Space, isa: Isa) -> Self {
        let first = rows.extents.len() - 1;
        let dense = dense(&walk.extents[first..]);
        let access = |strides: &Vec<usize>| match &strides[first..] {
            row if row.iter().all(|it| *it == 0) => RowAccess::Same,
            row if row == dense => RowAccess::Dense,
            _ => RowAccess::Scattered,
        };
        let accesses: Vec<RowAccess> = walk.strides.iter().map(access).collect();
        let granularity = |(access, strides): (&RowAccess, &Vec<usize>)| match access {
            RowAccess::Same if strides.iter().all(|it| *it == 0) => Granularity::Call,
            RowAccess::Same => Granularity::Row,
            RowAccess::Dense | RowAccess::Scattered => Granularity::Element,
        };
        let granularities: Vec<Granularity> =
            accesses.iter().zip(&rows.strides).map(granularity).collect();
        let loops = LoopProgram::new(program, &granularities, isa);
        let n_live = loops.layout.n_blocks.max(1);
        let block = (CACHE_ELEMENTS / n_live).clamp(128, 1024) / LINE * LINE;
        let longest = rows.extents.last().copied().unwrap_or(1).next_multiple_of(LINE);
        let is_integer = (0..accesses.len()).map(|it| program.reads_integers(it)).collect();
        let block = block.min(longest.max(LINE));
        let repeat = repeat(isa);
        Self { program: loops, space: rows, accesses, is_integer, walk, repeat, block }
    }

    /// Checks that inputs that are read as integers are of that type.
    pub(crate) fn check_types(&self, inputs: &[Region]) -> Result<(), Error> {
        let is_wrong = |it: &(usize, &Region)| self.is_integer[it.0] && it.1.dtype != DType::I32;
        let Some((number, input)) = inputs.iter().enumerate().find(is_wrong) else {
            return Ok(());
        };
        let message = format!("input {number}: expected elements of i32, found {}", input.dtype);
        Err(Error::new(ErrorKind::Program, message))
    }

    /// Allocates the memory for one thread.
    pub(crate) fn scratch(&self) -> Scratch {
        let layout = self.program.layout;
        let n_numbers = layout.n_numbers.next_multiple_of(LINE);
        let mut memory = vec![0.0; LINE + n_numbers + layout.n_blocks * self.block];
        let start = memory.as_mut_ptr();
        // At most a line, which was added above.
        let start = start.wrapping_add(start.align_offset(64).min(LINE));
        let mut slots: Vec<*mut f32> =
            (0..layout.n_numbers).map(|it| start.wrapping_add(it)).collect();
        let block = |it| start.wrapping_add(n_numbers + it * self.block);
        slots.extend((0..layout.n_blocks).map(block));
        slots.resize(layout.n_slots(), start);
        Scratch {
            _memory: memory,
            slots,
            starts: vec![0; layout.n_inputs],
            targets: vec![None; layout.n_results],
        }
    }

    /// Returns the approximate number of operations for one element.
    pub(crate) fn work(&self) -> usize {
        self.program.each_block.len() + self.accesses.len()
    }

    /// Prepares a call.
    ///
    /// # Safety
    /// The inputs have the elements that the space needs, and nobody writes there during the call.
    pub(crate) unsafe fn begin(&self, scratch: &mut Scratch, inputs: &[Region], scalars: &[f32]) {
        scratch.starts.fill(0);
        // SAFETY: required of the caller.
        unsafe { self.load(scratch, Granularity::Call, inputs, scalars) };
        // SAFETY: single numbers are in the scratch memory.
        unsafe { run(&scratch.slots, &self.program.once, 1) };
    }

    /// Prepares the row with this number, counted over the dims before the last.
    ///
    /// # Safety
    /// As [`Self::begin`], which has been called; the row is one of the space.
    pub(crate) unsafe fn begin_row(&self, scratch: &mut Scratch, inputs: &[Region], row: usize) {
        let outer = &self.space.extents[..self.space.extents.len() - 1];
        for (start, strides) in scratch.starts.iter_mut().zip(&self.space.strides) {
            *start = offset(outer, &strides[..outer.len()], row);
        }
        // SAFETY: required of the caller.
        unsafe { self.load(scratch, Granularity::Row, inputs, &[]) };
        // SAFETY: single numbers are in the scratch memory.
        unsafe { run(&scratch.slots, &self.program.each_row, 1) };
    }

    /// Computes `n` elements from position `at` of the row. [`Self::result`] then returns the
    /// results.
    ///
    /// # Safety
    /// As [`Self::begin_row`], which has been called for `row`; `n` is at most the block, and the
    /// row has `at + n` elements. The scratch memory's targets have `n` elements, which overlap no
    /// input and no other target.
    pub(crate) unsafe fn run_block(
        &self,
        scratch: &mut Scratch,
        inputs: &[Region],
        (row, at, n): (usize, usize, usize),
    ) {
        let layout = self.program.layout;
        for (number, input) in inputs.iter().enumerate() {
            let start = scratch.starts[number];
            let own = scratch.slots[layout.block(number)];
            let is_whole_word = input.dtype == DType::F32 || self.is_integer[number];
            scratch.slots[layout.input(number)] = match self.accesses[number] {
                RowAccess::Same => own,
                RowAccess::Dense if is_whole_word => input.pointer.wrapping_add(start + at),
                RowAccess::Dense | RowAccess::Scattered => {
                    let index = row * self.space.extents.last().copied().unwrap_or(1) + at;
                    // SAFETY: the block of scratch memory is the input's own, of at least `n`
                    // elements.
                    let copy = unsafe { std::slice::from_raw_parts_mut(own, n) };
                    // SAFETY: required of the caller.
                    unsafe { self.gather(number, input, index, copy) };
                    own
                }
            };
        }
        for (number, target) in scratch.targets.iter().enumerate() {
            let own = scratch.slots[layout.block(layout.n_inputs + number)];
            scratch.slots[layout.result(number)] = target.unwrap_or(own);
        }
        // SAFETY: every slot has `n` elements or is a single number, and no loop writes over its
        // operands.
        unsafe { run(&scratch.slots, &self.program.each_block, n) };
    }

    /// Returns the address of the last block of a result.
    pub(crate) fn result(&self, scratch: &Scratch, number: usize) -> *mut f32 {
        scratch.slots[self.program.layout.result(number)]
    }

    /// # Safety
    /// As [`Self::begin`].
    unsafe fn load(
        &self,
        scratch: &mut Scratch,
        granularity: Granularity,
        inputs: &[Region],
        scalars: &[f32],
    ) {
        for (_, uniform, slot) in self.program.numbers.iter().filter(|it| it.0 == granularity) {
            let value = match uniform {
                Uniform::Constant(value) => *value,
                Uniform::Scalar(number) => scalars[*number],
                Uniform::Input(number) => {
                    let input = &inputs[*number];
                    // SAFETY: the row begins within the input.
                    unsafe { element(input, scratch.starts[*number]) }
                }
                Uniform::Integer(number) => {
                    // SAFETY: as above.
                    unsafe { inputs[*number].at(scratch.starts[*number]).read() }
                }
            };
            // SAFETY: single numbers are in the scratch memory.
            unsafe { scratch.slots[*slot].write(value) };
        }
    }

    /// Copies elements of an input from point `index` of the space on.
    ///
    /// # Safety
    /// As [`Self::run_block`].
    unsafe fn gather(&self, number: usize, input: &Region, index: usize, to: &mut [f32]) {
        let (extents, strides) = (&self.walk.extents, &self.walk.strides[number]);
        // Integers are copied with their bits.
        let dtype = if self.is_integer[number] { DType::F32 } else { input.dtype };
        let input = &Region { dtype, ..*input };
        let last = extents.len() - 1;
        let (row, step) = (extents[last], strides[last]);
        let (n_rows, distance) =
            if last > 0 { (extents[last - 1], strides[last - 1]) } else { (1, 0) };
        let is_repeated = step == 0 && input.dtype == DType::F32;
        // These rows are written as whole lines.
        let surplus = row.next_multiple_of(LINE) - row;
        let (mut index, mut rest) = (index, to);
        while !rest.is_empty() {
            // Rows follow each other at one distance until a dim before theirs steps.
            let (mut at, number) = (index % row, index / row);
            let start = offset(extents, strides, number * row);
            let n_left = n_rows - number % n_rows;
            let n_whole = (rest.len().saturating_sub(surplus) / row).min(n_left);
            if is_repeated && at == 0 && n_whole > 0 {
                let first = input.address(start).cast::<f32>();
                // SAFETY: as below; the surplus of the last row fits behind it.
                unsafe { (self.repeat)(first, distance, rest.as_mut_ptr(), (n_whole, row)) };
                (index, rest) = (index + n_whole * row, &mut rest[n_whole * row..]);
                continue;
            }
            for number in 0..if is_repeated { 1 } else { n_left } {
                let length = (row - at).min(rest.len());
                let first = start + number * distance + at * step;
                // SAFETY: the points are within the space, so their elements are within the input.
                unsafe { copy_run(input, (first, step), length, rest) };
                (at, index, rest) = (0, index + length, &mut rest[length..]);
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

/// Copies `length` elements at equal distances. May write more elements of `to` than these.
///
/// # Safety
/// The elements are within the input, and nobody writes there.
#[inline(always)]
unsafe fn copy_run(input: &Region, (first, step): (usize, usize), length: usize, to: &mut [f32]) {
    if step == 0 {
        // SAFETY: required of the caller.
        let value = unsafe { element(input, first) };
        // Whole vectors are stored without loops. The next elements are written later.
        match to.first_chunk_mut::<LINE>() {
            Some(line) if length <= LINE => *line = [value; LINE],
            _ => to[..length].fill(value),
        }
        return;
    }
    for (position, value) in to[..length].iter_mut().enumerate() {
        // SAFETY: as above.
        *value = unsafe { element(input, first + position * step) };
    }
}

/// # Safety
/// The index is one of the region, and nobody writes there.
#[inline(always)]
pub(super) unsafe fn element(region: &Region, index: usize) -> f32 {
    let slot = region.address(index);
    match region.dtype {
        // SAFETY: required of the caller.
        DType::F32 => unsafe { slot.cast::<f32>().read() },
        // SAFETY: as above.
        DType::Bf16 => bf16::to_f32(unsafe { slot.cast::<u16>().read() }),
        // SAFETY: as above.
        DType::I32 => unsafe { slot.cast::<i32>().read() as f32 },
    }
}

/// # Safety
/// All slots of the operations have `n` elements, or one if the loop takes it as a single number;
/// no loop writes over its operands.
unsafe fn run(slots: &[*mut f32], operations: &[Operation], n: usize) {
    for operation in operations {
        let [a, b, c] = operation.operands.map(|it| slots[it].cast_const());
        // SAFETY: required of the caller.
        unsafe { (operation.run)(a, b, c, slots[operation.result], n) };
    }
}

fn dense(extents: &[usize]) -> Vec<usize> {
    let mut stride = 1;
    let mut strides: Vec<usize> = extents
        .iter()
        .rev()
        .map(|extent| {
            stride *= extent;
            stride / extent.max(&1)
        })
        .collect();
    strides.reverse();
    strides
}
