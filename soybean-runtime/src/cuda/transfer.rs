//! Transfers between buffers of ranks, described by patterns: one launch per rank.

use std::ops::Range;

use soybean_codegen::movement::{self, Dim, PART_WORDS, Pattern};
use soybean_plan::{Combine, DType, Run};

use crate::{Error, ErrorKind, tile_overlap::TileOverlap};

/// Start of a memory range: rank, allocation and byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLocation {
    pub(crate) rank: usize,
    pub(crate) block: MemoryBlock,
    pub(crate) offset: usize,
}

/// Allocations of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryBlock {
    /// Buffers of the program.
    Arena,
    /// Staging memory of collectives.
    Staging,
}

/// One part of a rank's transfer: its sources, several if they are combined, and its elements.
#[derive(Clone, Debug)]
pub(crate) struct TransferPart {
    pub(crate) sources: Vec<MemoryLocation>,
    pub(crate) dims: Vec<Dim>,
}

/// One launch on each rank, as data.
pub(crate) struct Transfer {
    /// Name of the function.
    pub(crate) function: String,
    /// Index of the function among those of all transfers.
    pub(crate) number: usize,
    /// Launch of each rank, if it has work.
    pub(crate) launches: Vec<Option<TransferLaunch>>,
}

/// The launch of one rank in a transfer.
pub(crate) struct TransferLaunch {
    /// Grid of blocks.
    pub(crate) grid: [u32; 3],
    /// Start of the result.
    pub(crate) result: MemoryLocation,
    patterns: Vec<(Pattern, Vec<MemoryLocation>)>,
    is_combining: bool,
    /// Bits of the element that fills all parts, instead of sources.
    fill: Option<u32>,
    /// Index of the first pattern word.
    first_word: usize,
}

impl Transfer {
    /// Builds a transfer in which each rank copies its parts, or combines several sources. The
    /// pattern words of a rank are appended to those counted in `n_words`.
    pub(crate) fn new(
        combine: Option<Combine>,
        dtype: DType,
        ranks: Vec<(MemoryLocation, Vec<TransferPart>)>,
        n_words: &mut [usize],
    ) -> Result<Self, Error> {
        let n_bytes = dtype.bytes();
        let parts = || ranks.iter().flat_map(|it| &it.1);
        let unit = parts().map(|it| movement::unit_bytes(&it.dims, n_bytes)).min();
        let unit = unit.unwrap_or(n_bytes);
        let function = match combine {
            None => movement::move_function(unit),
            Some(combine) => movement::combine_function(combine, dtype, unit),
        };
        let mut launches = Vec::new();
        for (rank, (result, parts)) in ranks.into_iter().enumerate() {
            let mut patterns = Vec::new();
            for TransferPart { sources, dims } in parts {
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
                fill: None,
                first_word: n_words[rank],
            });
            n_words[rank] += launch.as_ref().map_or(0, TransferLaunch::n_words);
            launches.push(launch);
        }
        Ok(Self { function, number: 0, launches })
    }

    /// Builds a transfer in which each rank fills its parts with one element, given by its bits.
    /// The parts have no sources. Words are counted as in [`Self::new`].
    pub(crate) fn fill(
        bits: u32,
        dtype: DType,
        ranks: Vec<(MemoryLocation, Vec<Vec<Dim>>)>,
        n_words: &mut [usize],
    ) -> Result<Self, Error> {
        let n_bytes = dtype.bytes();
        let mut launches = Vec::new();
        for (rank, (result, parts)) in ranks.into_iter().enumerate() {
            let mut patterns = Vec::new();
            for mut dims in parts {
                // All elements come from one place.
                dims.iter_mut().for_each(|it| it.stride_there = 0);
                let pattern = Pattern::new(&dims, n_bytes, n_bytes).ok_or_else(too_large)?;
                if pattern.n_points > 0 {
                    patterns.push((pattern, Vec::new()));
                }
            }
            let most = patterns.iter().map(|it| it.0.n_points).max().unwrap_or(0);
            let n_parts = u32::try_from(patterns.len()).map_err(|_| too_large())?;
            let launch = movement::grid(most, n_parts).map(|grid| TransferLaunch {
                grid,
                result,
                patterns,
                is_combining: false,
                fill: Some(bits),
                first_word: n_words[rank],
            });
            n_words[rank] += launch.as_ref().map_or(0, TransferLaunch::n_words);
            launches.push(launch);
        }
        Ok(Self { function: movement::move_function(n_bytes), number: 0, launches })
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::Program, "a collective: expected fewer than 2^32 elements on each rank")
}

impl TransferLaunch {
    fn n_words(&self) -> usize {
        self.n_words_before_parts() + self.patterns.len() * PART_WORDS
    }

    fn n_words_before_parts(&self) -> usize {
        let words = |(pattern, sources): &(Pattern, Vec<MemoryLocation>)| {
            pattern.tables.len() + sources.len()
        };
        self.patterns.iter().map(words).sum::<usize>() + usize::from(self.fill.is_some())
    }

    /// Returns the address of the parts if the rank's words begin at `base`.
    pub(crate) fn parts_address(&self, base: u64) -> u64 {
        base + 8 * (self.first_word + self.n_words_before_parts()) as u64
    }

    /// Writes the pattern words of a rank, whose memory begins at `base`.
    pub(crate) fn write(
        &self,
        words: &mut [u64],
        base: u64,
        address: impl Fn(MemoryLocation) -> u64,
    ) {
        let mut at = self.first_word;
        let mut parts = Vec::new();
        let filling = base + 8 * at as u64;
        if let Some(bits) = self.fill {
            words[at] = u64::from(bits);
            at += 1;
        }
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
            let source = match sources.first() {
                Some(_) if self.is_combining => list,
                Some(source) => address(*source),
                None => filling,
            };
            let n_sources = u32::try_from(sources.len()).expect("as many as ranks");
            parts.extend(pattern.part(source, n_sources, tables));
        }
        words[at..at + parts.len()].copy_from_slice(&parts);
    }
}

/// Returns the dims of a range that is contiguous in both buffers.
pub(crate) fn contiguous(range: &Range<usize>) -> Vec<Dim> {
    let run = Run { here: range.start, there: range.start, length: range.len() };
    vec![Dim { runs: vec![run], stride_here: 1, stride_there: 1 }]
}

/// Side of a movement that is packed: its elements are contiguous, in the order of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackedSide {
    LocalRanks,
    There,
}

/// Returns the dims of an overlap with one side packed from element `start` on, and the number of
/// elements.
pub(crate) fn packed(overlap: &TileOverlap, side: PackedSide, start: usize) -> (Vec<Dim>, usize) {
    let mut dims = overlap.dims();
    let mut stride = 1;
    for dim in dims.iter_mut().rev() {
        let mut position = 0;
        for run in &mut dim.runs {
            match side {
                PackedSide::LocalRanks => run.here = position,
                PackedSide::There => run.there = position,
            }
            position += run.length;
        }
        match side {
            PackedSide::LocalRanks => dim.stride_here = stride,
            PackedSide::There => dim.stride_there = stride,
        }
        stride *= position;
    }
    (with_offset(dims, side, start), stride)
}

/// Adds an offset to one side. It is the stride of a dim with one element, so that it counts for
/// the unit size.
pub(crate) fn with_offset(mut dims: Vec<Dim>, side: PackedSide, start: usize) -> Vec<Dim> {
    let one = |here, there| vec![Run { here, there, length: 1 }];
    let first = match side {
        PackedSide::LocalRanks => Dim { runs: one(1, 0), stride_here: start, stride_there: 0 },
        PackedSide::There => Dim { runs: one(0, 1), stride_here: 0, stride_there: start },
    };
    dims.insert(0, first);
    dims
}
