//! CUDA C that copies and combines elements by patterns which are data, not text. Collectives use
//! it.
//!
//! A *part* is the contribution of one source to a result: `result[here(x)] = source[there(x)]` for
//! all points `x` of an index space. Evenly spaced offsets along a dim are stored as steps, others
//! in a table. Offsets are counted in *units*: as many bytes as can be moved at once.

use soybean_plan::{Combine, DType, MAX_RANK, Run};

use crate::reduction::combine_type;

/// Returns the text of these functions, which follows the prelude once. Functions that are not
/// named are left out, since compiling all of them takes longer than most models.
#[must_use]
pub fn text(functions: &[String]) -> String {
    let wanted = instances().filter(|(name, _)| functions.contains(name));
    let start = include_str!("movement.cu").to_owned();
    wanted.fold(start, |text, (name, instance)| {
        text + &format!("\n{instance}\nSOYBEAN_EXPORT({name}, 0)\n")
    })
}

/// Returns the names of all functions.
#[must_use]
pub fn functions() -> Vec<String> {
    instances().map(|(name, _)| name).collect()
}

/// Returns the name of each function, and the line that defines it.
fn instances() -> impl Iterator<Item = (String, String)> {
    let moves = UNITS
        .iter()
        .map(|(bytes, unit)| (move_function(*bytes), format!("SOYBEAN_MOVE({bytes}, {unit})")));
    let combines = [Combine::Sum, Combine::Max].into_iter().flat_map(|combine| {
        [(DType::F32, "float"), (DType::Bf16, "bf16"), (DType::I32, "int")].into_iter().flat_map(
            move |(dtype, element)| {
                let fits = move |it: &&(usize, &str)| it.0 >= dtype.bytes();
                UNITS.iter().filter(fits).map(move |(bytes, unit)| {
                    let function = combine_function(combine, dtype, *bytes);
                    let how = combine_type(combine, dtype);
                    let instance = format!("SOYBEAN_COMBINE({function}, {how}, {element}, {unit})");
                    (function, instance)
                })
            },
        )
    });
    moves.chain(combines)
}

/// The unit sizes in bytes, and their types.
const UNITS: [(usize, &str); 4] =
    [(2, "unsigned short"), (4, "unsigned"), (8, "uint2"), (16, "uint4")];

/// The threads of a block of each of the functions.
pub const BLOCK: u32 = 256;

/// The 64-bit words of a part in device memory.
pub const PART_WORDS: usize = 6 + 2 * MOST_DIMS;

/// The maximum number of dims of a pattern. A dim of a tensor with evenly spaced runs becomes two.
const MOST_DIMS: usize = 2 * MAX_RANK;

/// The maximum number of bytes that one thread moves at once.
const LARGEST_UNIT_BYTES: usize = 16;

/// More blocks would take the device from kernels that run at the same time, and move nothing
/// faster.
const MOST_BLOCKS: u64 = 1024;

/// The table number of a dim that has steps.
const NO_TABLE: u32 = u32::MAX;

/// Returns the name of the function that copies units of 2, 4, 8 or 16 bytes. Its arguments are the
/// parts, one after another in device memory, and the result.
#[must_use]
pub fn move_function(unit_bytes: usize) -> String {
    format!("soybean_move_{unit_bytes}")
}

/// Returns the name of the function that combines the elements of all sources of a part in their
/// order. Sums of `bf16` are computed in `f32`. Its arguments are those of [`move_function`].
#[must_use]
pub fn combine_function(combine: Combine, dtype: DType, unit_bytes: usize) -> String {
    format!("soybean_combine_{}_{dtype}_{unit_bytes}", combine.name())
}

/// Returns the blocks that run a function over parts of which the largest has this many points;
/// [`None`] if there is nothing to do.
#[must_use]
pub fn grid(most_points: u64, n_parts: u32) -> Option<[u32; 3]> {
    let n_blocks = most_points.div_ceil(u64::from(BLOCK)).min(MOST_BLOCKS);
    let n_blocks = u32::try_from(n_blocks).ok()?;
    (n_blocks > 0 && n_parts > 0).then_some([n_blocks, n_parts, 1])
}

/// One dim of the index space that a source and a result share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The shared positions in the result (`here`) and in the source (`there`).
    pub runs: Vec<Run>,
    /// The distance of neighbors in the result, in elements.
    pub stride_here: usize,
    /// The distance of neighbors in the source, in elements.
    pub stride_there: usize,
}

/// Returns the largest unit in bytes that can move these dims, outermost first. Both buffers begin
/// at multiples of 16 bytes. Parts of one launch share the smallest of their units.
#[must_use]
pub fn unit_bytes(dims: &[Dim], element_bytes: usize) -> usize {
    let Some((inner, outer)) = dims.split_last() else { return element_bytes };
    let is_dense = inner.stride_here == 1 && inner.stride_there == 1;
    let fits = |unit: usize| {
        let is_multiple = |it: &Run| {
            [it.here, it.there, it.length].iter().all(|place| place.is_multiple_of(unit))
        };
        let steps_over = |dim: &Dim| {
            dim.stride_here.is_multiple_of(unit) && dim.stride_there.is_multiple_of(unit)
        };
        is_dense && inner.runs.iter().all(is_multiple) && outer.iter().all(steps_over)
    };
    let mut unit = 1;
    while 2 * unit * element_bytes <= LARGEST_UNIT_BYTES && fits(2 * unit) {
        unit *= 2;
    }
    unit * element_bytes
}

/// The offsets of the points of a part, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The number of points.
    pub n_points: u64,
    /// Pairs (`here`, `there`): the tables of all dims that have one, concatenated.
    pub tables: Vec<[u32; 2]>,
    here: u64,
    there: u64,
    dims: Vec<Steps>,
}

/// One dim of a pattern, as stored in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    extent: u32,
    /// The number of its first pair, or [`NO_TABLE`].
    table: u32,
    here: u32,
    there: u32,
}

impl Pattern {
    /// Returns the pattern of these dims, outermost first, in units that are no larger than
    /// [`unit_bytes`]. Returns none if there are 2^32 points or units.
    #[must_use]
    pub fn new(dims: &[Dim], element_bytes: usize, unit_bytes: usize) -> Option<Self> {
        let unit = unit_bytes / element_bytes;
        let mut this =
            Self { n_points: 1, tables: Vec::new(), here: 0, there: 0, dims: Vec::new() };
        for (number, dim) in dims.iter().enumerate() {
            if number + 1 == dims.len() {
                let in_units = |it: &Run| Run {
                    here: it.here / unit,
                    there: it.there / unit,
                    length: it.length / unit,
                };
                let runs: Vec<Run> = dim.runs.iter().map(in_units).collect();
                this.push(&runs, dim.stride_here, dim.stride_there)?;
            } else {
                this.push(&dim.runs, dim.stride_here / unit, dim.stride_there / unit)?;
            }
        }
        if this.dims.is_empty() {
            this.dims.push(Steps { extent: 1, table: NO_TABLE, here: 0, there: 0 });
        }
        (this.n_points < 1 << 32 && this.dims.len() <= MOST_DIMS).then_some(this)
    }

    /// Returns the pattern as stored in device memory, as little-endian words. `source` is the
    /// address of the first element of the source or, to combine, of a list of `n_sources` such
    /// addresses; `tables` is the address of the tables.
    #[must_use]
    pub fn part(&self, source: u64, n_sources: u32, tables: u64) -> [u64; PART_WORDS] {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut words = [0; PART_WORDS];
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        let n_dims = self.dims.len() as u32;
        let head = [source, tables, self.here, self.there, self.n_points, word(n_dims, n_sources)];
        words[..head.len()].copy_from_slice(&head);
        for (words, dim) in words[head.len()..].chunks_exact_mut(2).zip(&self.dims) {
            words.copy_from_slice(&[word(dim.extent, dim.table), word(dim.here, dim.there)]);
        }
        words
    }

    /// Adds a dim as the innermost.
    fn push(&mut self, runs: &[Run], stride_here: usize, stride_there: usize) -> Option<()> {
        let n_positions: usize = runs.iter().map(|it| it.length).sum();
        self.n_points = self.n_points.checked_mul(u64::try_from(n_positions).ok()?)?;
        let Some(first) = runs.first().filter(|_| n_positions > 0) else { return Some(()) };
        let Some(spacing) = spacing(runs) else {
            return self.push_table(runs, stride_here, stride_there);
        };
        self.here += u64::try_from(first.here * stride_here).ok()?;
        self.there += u64::try_from(first.there * stride_there).ok()?;
        self.push_steps(runs.len(), spacing.0 * stride_here, spacing.1 * stride_there)?;
        self.push_steps(first.length, stride_here, stride_there)
    }

    /// Adds evenly spaced offsets; they are merged with the dim around them if they only lengthen
    /// it.
    fn push_steps(&mut self, extent: usize, here: usize, there: usize) -> Option<()> {
        if extent == 1 {
            return Some(());
        }
        let [extent, here, there] =
            [u32::try_from(extent), u32::try_from(here), u32::try_from(there)].map(Result::ok);
        let (extent, here, there) = (extent?, here?, there?);
        let inner = (extent.checked_mul(here), extent.checked_mul(there));
        if let Some(outer) = self.dims.last_mut()
            && outer.table == NO_TABLE
            && inner == (Some(outer.here), Some(outer.there))
        {
            *outer =
                Steps { extent: outer.extent.checked_mul(extent)?, table: NO_TABLE, here, there };
        } else {
            self.dims.push(Steps { extent, table: NO_TABLE, here, there });
        }
        Some(())
    }

    fn push_table(&mut self, runs: &[Run], stride_here: usize, stride_there: usize) -> Option<()> {
        let table = u32::try_from(self.tables.len()).ok()?;
        for run in runs {
            for step in 0..run.length {
                let here = u32::try_from((run.here + step) * stride_here).ok()?;
                let there = u32::try_from((run.there + step) * stride_there).ok()?;
                self.tables.push([here, there]);
            }
        }
        let extent = u32::try_from(self.tables.len()).ok()? - table;
        self.dims.push(Steps { extent, table, here: 0, there: 0 });
        Some(())
    }
}

/// Returns the distance from run to run here and there, if it is always the same and all runs are
/// equally long.
fn spacing(runs: &[Run]) -> Option<(usize, usize)> {
    let [first, second, ..] = runs else { return Some((0, 0)) };
    let distance =
        |a: &Run, b: &Run| Some((b.here.checked_sub(a.here)?, b.there.checked_sub(a.there)?));
    let spacing = distance(first, second)?;
    let is_even = runs
        .windows(2)
        .all(|it| it[0].length == it[1].length && distance(&it[0], &it[1]) == Some(spacing));
    is_even.then_some(spacing)
}

#[cfg(test)]
mod tests;
