//! Runs a prepared scalar program block by block, with inputs used where they lie if that is possible.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers and ranks share")]

use soybean_plan::{DType, ScalarProgram, bf16};

use super::{
    isa::Isa,
    program::{Operation, Pace, Prepared, Uniform},
    space::{Space, offset},
};

/// The elements of a buffer, of 4 or of 2 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) pointer: *mut f32,
    pub(crate) n_elements: usize,
    pub(crate) dtype: DType,
}

// SAFETY: a region is a place, not a permission: each access says for itself why it is alone.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The place of an element of 4 bytes.
    pub(crate) const fn at(&self, index: usize) -> *mut f32 {
        self.pointer.wrapping_add(index)
    }

    /// The place of an element of any type.
    pub(crate) const fn place(&self, index: usize) -> *mut u8 {
        self.pointer.cast::<u8>().wrapping_add(index * self.dtype.bytes())
    }

    /// Whether the two share memory.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (start, end) = (|it: &Self| it.place(0), |it: &Self| it.place(it.n_elements));
        start(self) < end(other) && start(other) < end(self)
    }
}

/// How an input's elements follow one another within a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// One element for the whole row.
    Same,
    /// One after the other.
    Dense,
    /// In some other way: they are copied first.
    Scattered,
}

/// A program over rows: the last dim of a space is the row, the others number the rows.
#[derive(Debug)]
pub(crate) struct Engine {
    prepared: Prepared,
    /// The space whose last dim is a row.
    pub(crate) space: Space,
    reaches: Vec<Reach>,
    /// For scattered inputs, the space to walk: rows may join several of its dims.
    walk: Space,
    /// The number of elements that are worked on at once.
    pub(crate) block: usize,
}

/// The memory of one thread for one engine.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Where the places lead.
    _memory: Vec<f32>,
    places: Vec<*mut f32>,
    starts: Vec<usize>,
    /// For each result, where the next block of it may be computed in place; else it is left in scratch memory.
    pub(crate) targets: Vec<Option<*mut f32>>,
}

// SAFETY: the pointers lead into `_memory`, or are set anew before each use.
unsafe impl Send for Scratch {}

/// Elements of a block: all blocks of a program together should stay in the first-level cache.
const CACHE_ELEMENTS: usize = 8 * 1024;
/// Blocks begin at multiples of a cache line.
const LINE: usize = 16;

impl Engine {
    /// An engine over `rows`, a space with one operand for each input; scattered inputs are found by `walk`.
    pub(crate) fn new(program: &ScalarProgram, rows: Space, walk: Space, isa: Isa) -> Self {
        let reach = |(number, strides): (usize, &Vec<usize>)| match strides.last() {
            _ if walk.strides[number].iter().all(|it| *it == 0) => Reach::Same,
            _ if walk.extents.len() > 1 && rows.extents.len() == 1 => {
                let is_dense = walk.strides[number] == dense(&walk.extents);
                if is_dense { Reach::Dense } else { Reach::Scattered }
            }
            Some(0) => Reach::Same,
            Some(1) => Reach::Dense,
            _ => Reach::Scattered,
        };
        let reaches: Vec<Reach> = rows.strides.iter().enumerate().map(reach).collect();
        let pace = |(reach, strides): (&Reach, &Vec<usize>)| match reach {
            Reach::Same if strides.iter().all(|it| *it == 0) => Pace::Call,
            Reach::Same => Pace::Row,
            Reach::Dense | Reach::Scattered => Pace::Element,
        };
        let paces: Vec<Pace> = reaches.iter().zip(&rows.strides).map(pace).collect();
        let prepared = Prepared::new(program, &paces, isa);
        let n_live = prepared.layout.n_blocks.max(1);
        let block = (CACHE_ELEMENTS / n_live).clamp(128, 1024) / LINE * LINE;
        let longest = rows.extents.last().copied().unwrap_or(1).next_multiple_of(LINE);
        Self { prepared, space: rows, reaches, walk, block: block.min(longest.max(LINE)) }
    }

    /// Memory for one thread.
    pub(crate) fn scratch(&self) -> Scratch {
        let layout = self.prepared.layout;
        let n_numbers = layout.n_numbers.next_multiple_of(LINE);
        let mut memory = vec![0.0; LINE + n_numbers + layout.n_blocks * self.block];
        let start = memory.as_mut_ptr();
        // At most a line, which was added above.
        let start = start.wrapping_add(start.align_offset(64).min(LINE));
        let mut places: Vec<*mut f32> =
            (0..layout.n_numbers).map(|it| start.wrapping_add(it)).collect();
        let block = |it| start.wrapping_add(n_numbers + it * self.block);
        places.extend((0..layout.n_blocks).map(block));
        places.resize(layout.n_places(), start);
        Scratch {
            _memory: memory,
            places,
            starts: vec![0; layout.n_inputs],
            targets: vec![None; layout.n_results],
        }
    }

    /// The work for one element, roughly in operations.
    pub(crate) fn work(&self) -> usize {
        self.prepared.each_block.len() + self.reaches.len()
    }

    /// Makes ready for a call.
    ///
    /// # Safety
    /// The inputs have the elements that the space needs, and nobody writes there during the call.
    pub(crate) unsafe fn begin(&self, scratch: &mut Scratch, inputs: &[Region], scalars: &[f32]) {
        scratch.starts.fill(0);
        // SAFETY: required of the caller.
        unsafe { self.load(scratch, Pace::Call, inputs, scalars) };
        // SAFETY: numbers stand in the scratch memory.
        unsafe { run(&scratch.places, &self.prepared.once, 1) };
    }

    /// Makes ready for the row with this number, counted over the dims before the last.
    ///
    /// # Safety
    /// As [`Self::begin`], which has been called; the row is one of the space.
    pub(crate) unsafe fn begin_row(&self, scratch: &mut Scratch, inputs: &[Region], row: usize) {
        let outer = &self.space.extents[..self.space.extents.len() - 1];
        for (start, strides) in scratch.starts.iter_mut().zip(&self.space.strides) {
            *start = offset(outer, &strides[..outer.len()], row);
        }
        // SAFETY: required of the caller.
        unsafe { self.load(scratch, Pace::Row, inputs, &[]) };
        // SAFETY: numbers stand in the scratch memory.
        unsafe { run(&scratch.places, &self.prepared.each_row, 1) };
    }

    /// Computes `n` elements from position `at` of the row; [`Self::result`] then says where the results stand.
    ///
    /// # Safety
    /// As [`Self::begin_row`], which has been called for `row`; `n` is at most the block, and the row has `at + n` elements. The scratch
    /// memory's targets have `n` elements, which overlap no input and no other target.
    pub(crate) unsafe fn run_block(
        &self,
        scratch: &mut Scratch,
        inputs: &[Region],
        (row, at, n): (usize, usize, usize),
    ) {
        let layout = self.prepared.layout;
        for (number, input) in inputs.iter().enumerate() {
            let start = scratch.starts[number];
            let own = scratch.places[layout.block(number)];
            let is_float = input.dtype == DType::F32;
            scratch.places[layout.input(number)] = match self.reaches[number] {
                Reach::Same => own,
                Reach::Dense if is_float => input.pointer.wrapping_add(start + at),
                Reach::Dense | Reach::Scattered => {
                    let index = row * self.space.extents.last().copied().unwrap_or(1) + at;
                    // SAFETY: the block of scratch memory is the input's own, of at least `n` elements.
                    let copy = unsafe { std::slice::from_raw_parts_mut(own, n) };
                    // SAFETY: required of the caller.
                    unsafe { self.gather(number, input, index, copy) };
                    own
                }
            };
        }
        for (number, target) in scratch.targets.iter().enumerate() {
            let own = scratch.places[layout.block(layout.n_inputs + number)];
            scratch.places[layout.result(number)] = target.unwrap_or(own);
        }
        // SAFETY: every place has `n` elements or is a single number, and no loop writes over its operands.
        unsafe { run(&scratch.places, &self.prepared.each_block, n) };
    }

    /// Where the last block of a result stands.
    pub(crate) fn result(&self, scratch: &Scratch, number: usize) -> *mut f32 {
        scratch.places[self.prepared.layout.result(number)]
    }

    /// # Safety
    /// As [`Self::begin`].
    unsafe fn load(&self, scratch: &mut Scratch, pace: Pace, inputs: &[Region], scalars: &[f32]) {
        for (_, uniform, place) in self.prepared.numbers.iter().filter(|it| it.0 == pace) {
            let value = match uniform {
                Uniform::Constant(value) => *value,
                Uniform::Scalar(number) => scalars[*number],
                Uniform::Input(number) => {
                    let input = &inputs[*number];
                    // SAFETY: the row begins within the input.
                    unsafe { element(input, scratch.starts[*number]) }
                }
            };
            // SAFETY: numbers stand in the scratch memory.
            unsafe { scratch.places[*place].write(value) };
        }
    }

    /// Copies elements of an input from point `index` of the space on.
    ///
    /// # Safety
    /// As [`Self::run_block`].
    unsafe fn gather(&self, number: usize, input: &Region, index: usize, to: &mut [f32]) {
        let (extents, strides) = (&self.walk.extents, &self.walk.strides[number]);
        let row = extents.last().copied().unwrap_or(1);
        let step = strides.last().copied().unwrap_or(0);
        let (mut index, mut rest) = (index, to);
        while !rest.is_empty() {
            let first = offset(extents, strides, index);
            let length = (row - index % row).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            for (position, value) in part.iter_mut().enumerate() {
                // SAFETY: the point lies within the space, so its element lies within the input.
                *value = unsafe { element(input, first + position * step) };
            }
            index += length;
            rest = after;
        }
    }
}

/// # Safety
/// The index is one of the region, and nobody writes there.
#[inline(always)]
pub(super) unsafe fn element(region: &Region, index: usize) -> f32 {
    let place = region.place(index);
    match region.dtype {
        // SAFETY: required of the caller.
        DType::F32 => unsafe { place.cast::<f32>().read() },
        // SAFETY: as above.
        DType::Bf16 => bf16::to_f32(unsafe { place.cast::<u16>().read() }),
        // SAFETY: as above.
        DType::I32 => unsafe { place.cast::<i32>().read() as f32 },
    }
}

/// # Safety
/// All places of the operations have `n` elements, or one if the loop takes it as a single number; no loop writes over its operands.
unsafe fn run(places: &[*mut f32], operations: &[Operation], n: usize) {
    for operation in operations {
        let [a, b, c] = operation.operands.map(|it| places[it].cast_const());
        // SAFETY: required of the caller.
        unsafe { (operation.run)(a, b, c, places[operation.result], n) };
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
