//! Elements that pass from buffers to buffers in patterns: one launch on each rank.

use std::ops::Range;

use soybean_codegen::movement::{self, Dim, PART_WORDS, Pattern};
use soybean_plan::{Combine, DType, Run};

use crate::{Error, ErrorKind, overlap::Overlap};

/// Where a stretch of memory begins: on which rank, in which of its blocks, how many bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) rank: usize,
    pub(crate) block: Block,
    pub(crate) offset: usize,
}

/// The blocks of a rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// The buffers of the program.
    Arena,
    /// What collectives use while they run.
    Staging,
}

/// What a rank does in a transfer: for each part the sources (several to combine) and the elements.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) sources: Vec<Position>,
    pub(crate) dims: Vec<Dim>,
}

/// One launch on each rank, as data.
pub(crate) struct Transfer {
    /// The function.
    pub(crate) function: String,
    /// The function's number among those of the model's transfers.
    pub(crate) number: usize,
    /// For each rank its launch, if it has anything to do.
    pub(crate) launches: Vec<Option<TransferLaunch>>,
}

/// A rank's part of a transfer.
pub(crate) struct TransferLaunch {
    /// The blocks.
    pub(crate) grid: [u32; 3],
    /// Where the results begin.
    pub(crate) result: Position,
    patterns: Vec<(Pattern, Vec<Position>)>,
    is_combining: bool,
    /// The first of its words among those of its rank.
    first_word: usize,
}

impl Transfer {
    /// The transfer in which each rank takes its parts: copies, or with several sources what they combine to; a rank's words follow those in `n_words`, which grows by them.
    pub(crate) fn new(
        combine: Option<Combine>,
        dtype: DType,
        ranks: Vec<(Position, Vec<Part>)>,
        n_words: &mut [usize],
    ) -> Result<Self, Error> {
        let n_bytes = dtype.bytes();
        let parts = || ranks.iter().flat_map(|it| &it.1);
        let unit = parts().map(|it| movement::unit_bytes(&it.dims, n_bytes)).min();
        let unit = unit.unwrap_or(n_bytes);
        let function = match combine {
            None => movement::move_function(unit),
            Some(combine) => movement::combine_function(combine, dtype, unit).ok_or_else(|| {
                let message = format!("expected partial results in f32 or bf16, found {dtype}");
                Error::new(ErrorKind::Program, message)
            })?,
        };
        let mut launches = Vec::new();
        for (rank, (result, parts)) in ranks.into_iter().enumerate() {
            let mut patterns = Vec::new();
            for Part { sources, dims } in parts {
                let pattern = Pattern::new(&dims, n_bytes, unit).ok_or_else(too_large)?;
                if pattern.n_points > 0 {
                    patterns.push((pattern, sources));
                }
            }
            let most = patterns.iter().map(|it| it.0.n_points).max().unwrap_or(0);
            let n_parts = u32::try_from(patterns.len()).map_err(|_| too_large())?;
            let launch = movement::grid(most, n_parts).map(|grid| TransferLaunch {
                grid,
                result,
                patterns,
                is_combining: combine.is_some(),
                first_word: n_words[rank],
            });
            n_words[rank] += launch.as_ref().map_or(0, TransferLaunch::n_words);
            launches.push(launch);
        }
        Ok(Self { function, number: 0, launches })
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::Program, "a collective: expected fewer than 2^32 elements on each rank")
}

impl TransferLaunch {
    fn n_words(&self) -> usize {
        let words = |(pattern, sources): &(Pattern, Vec<Position>)| {
            pattern.tables.len() + sources.len() + PART_WORDS
        };
        self.patterns.iter().map(words).sum()
    }

    /// The address of the parts, if the rank's words begin at `base`.
    pub(crate) fn parts_address(&self, base: u64) -> u64 {
        let n_before: usize = self.patterns.iter().map(|it| it.0.tables.len() + it.1.len()).sum();
        base + 8 * (self.first_word + n_before) as u64
    }

    /// Writes the words among those of the rank, which begin at `base`.
    pub(crate) fn write(&self, words: &mut [u64], base: u64, address: impl Fn(Position) -> u64) {
        let mut at = self.first_word;
        let mut parts = Vec::new();
        for (pattern, sources) in &self.patterns {
            let tables = base + 8 * at as u64;
            for [here, there] in &pattern.tables {
                words[at] = u64::from(*here) | u64::from(*there) << 32;
                at += 1;
            }
            let list = base + 8 * at as u64;
            for source in sources {
                words[at] = address(*source);
                at += 1;
            }
            let source = if self.is_combining { list } else { address(sources[0]) };
            let n_sources = u32::try_from(sources.len()).expect("as many as ranks");
            parts.extend(pattern.part(source, n_sources, tables));
        }
        words[at..at + parts.len()].copy_from_slice(&parts);
    }
}

/// Elements that lie one after another in both buffers.
pub(crate) fn stretch(range: &Range<usize>) -> Vec<Dim> {
    let run = Run { here: range.start, there: range.start, length: range.len() };
    vec![Dim { runs: vec![run], stride_here: 1, stride_there: 1 }]
}

/// Which side of a movement is packed: its elements lie one after another, in the order of the other side's visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    Here,
    There,
}

/// An overlap of which one side is packed, from element `start` on; and the number of its elements.
pub(crate) fn packed(overlap: &Overlap, side: Packed, start: usize) -> (Vec<Dim>, usize) {
    let mut dims = overlap.dims();
    let mut stride = 1;
    for dim in dims.iter_mut().rev() {
        let mut position = 0;
        for run in &mut dim.runs {
            match side {
                Packed::Here => run.here = position,
                Packed::There => run.there = position,
            }
            position += run.length;
        }
        match side {
            Packed::Here => dim.stride_here = stride,
            Packed::There => dim.stride_there = stride,
        }
        stride *= position;
    }
    (shifted(dims, side, start), stride)
}

/// Dims of which one side begins at this element. A dim of one element holds it as a stride, so that it counts for the size of units.
pub(crate) fn shifted(mut dims: Vec<Dim>, side: Packed, start: usize) -> Vec<Dim> {
    let one = |here, there| vec![Run { here, there, length: 1 }];
    let first = match side {
        Packed::Here => Dim { runs: one(1, 0), stride_here: start, stride_there: 0 },
        Packed::There => Dim { runs: one(0, 1), stride_here: 0, stride_there: start },
    };
    dims.insert(0, first);
    dims
}
