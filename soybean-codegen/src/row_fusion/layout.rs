//! The threads of a row, and the places of its elements.

use soybean_plan::{DType, MAX_RANK, RowFusion, RowStageForm, Strides};

use crate::{
    Call,
    map::Access,
    space::{Axis, axes, n_points},
};

/// The threads of a block that computes several rows. Small blocks fill the registers of a
/// multiprocessor best where threads have many.
const BLOCK: usize = 128;
/// The most threads of a row that stays in registers, in the order of preference, and the most
/// elements of all tensors that each may hold. A multiprocessor has 65,536 registers.
const THREADS: [(usize, usize); 3] = [(256, 128), (512, 80), (1024, 32)];
/// The most elements of a tensor, and of all tensors, that a lane of a warp holds of one of many
/// rows. A warp needs no barriers, and what is computed once for a row costs less.
const OF_LANE: (usize, usize) = (24, 224);
/// So many rows keep all multiprocessors of a large device busy with a warp each.
const MANY_ROWS: usize = 2048;
/// The threads of a row that does not.
const THREADS_OF_LONG_ROW: usize = 512;
/// The most elements of one tensor that a thread holds.
const MOST_ELEMENTS: usize = 16;
/// The most elements of all tensors that a thread of a long row holds at once, besides those that
/// all rows share.
const MOST_AT_ONCE: usize = 48;
/// The most chunks of a long row that a thread holds at once.
const MOST_CHUNKS: usize = 8;

/// The arrangement of a kernel's threads over rows, and of its operands in memory.
pub(super) struct Layout {
    /// The dims that number rows, and those of a row, with the strides of the inputs.
    pub(super) rows: Vec<Axis>,
    pub(super) columns: Vec<Axis>,
    pub(super) types: Vec<DType>,
    pub(super) results: Vec<DType>,
    /// The number of neighboring elements that a thread reads at once.
    pub(super) width: usize,
    /// The threads that share a row: a power of two up to 32, or a multiple of 32.
    pub(super) n_threads: usize,
    pub(super) residence: Residence,
}

/// Where a row is between its passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residence {
    /// In registers: each thread has this many chunks of neighboring elements.
    Registers { n_chunks: usize },
    /// In memory, from where each pass reads it, so many chunks of a thread at once.
    Memory { n_chunks: usize },
}

impl Layout {
    pub(super) fn new(fusion: &RowFusion, call: &Call<'_>) -> Self {
        let (rows, columns) = fusion.extents.split_at(fusion.n_row_dims);
        let of_columns = |strides: &Strides| {
            let mut shifted = [0; MAX_RANK];
            shifted[..columns.len()]
                .copy_from_slice(&strides.0[fusion.n_row_dims..fusion.n_row_dims + columns.len()]);
            Strides(shifted)
        };
        let columns_of_inputs: Vec<Strides> = fusion.inputs.iter().map(of_columns).collect();
        let mut this = Self {
            rows: axes(rows, &fusion.inputs),
            columns: axes(columns, &columns_of_inputs),
            types: call.inputs.to_vec(),
            results: call.results.to_vec(),
            width: 1,
            n_threads: 1,
            residence: Residence::Registers { n_chunks: 1 },
        };
        this.width = this.best_width(fusion);
        let points = fusion.stages.iter().filter(|it| it.form == RowStageForm::Point);
        let n_arrays =
            [this.varying().count(), this.varying().filter(|it| !this.is_shared(*it)).count()];
        let n_points = points.count();
        (this.n_threads, this.residence) = threads(
            fusion.n_rows(),
            this.n_numbers(),
            this.width,
            n_arrays.map(|it| it + n_points),
        );
        this
    }

    /// Returns all dims, those of rows last.
    pub(super) fn axes(&self) -> Vec<Axis> {
        self.rows.iter().chain(&self.columns).cloned().collect()
    }

    /// Returns true if the elements of an input differ along a row.
    pub(super) fn varies(&self, input: usize) -> bool {
        self.columns.iter().any(|it| it.strides[input] != 0)
    }

    /// Returns true if all rows read the same elements of an input.
    pub(super) fn is_shared(&self, input: usize) -> bool {
        self.rows.iter().all(|it| it.strides[input] == 0)
    }

    pub(super) fn varying(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.types.len()).filter(|it| self.varies(*it))
    }

    /// Returns the number of chunks that a row consists of.
    pub(super) fn n_numbers(&self) -> usize {
        n_points(&self.columns) / self.width
    }

    pub(super) const fn rows_of_block(&self) -> usize {
        if self.n_threads > 32 { 1 } else { BLOCK / self.n_threads }
    }

    pub(super) const fn block(&self) -> usize {
        self.n_threads * self.rows_of_block()
    }

    /// Returns the threads of a block, and the blocks of a multiprocessor at least.
    pub(super) fn bounds(&self) -> String {
        match self.residence {
            Residence::Registers { .. } => self.block().to_string(),
            // While one block stores a row, the other one reads the next.
            Residence::Memory { .. } => format!("{}, 2", self.block()),
        }
    }

    /// Returns the number of neighbors that fill 16 bytes of the narrowest contiguous tensor.
    fn best_width(&self, fusion: &RowFusion) -> usize {
        let axes = self.axes();
        let extent = self.columns.last().map_or(1, |it| it.extent);
        let stored = fusion.stored().zip(&self.results);
        let stored = stored.filter(|it| fusion.stages[it.0].form == RowStageForm::Point);
        let results: Vec<DType> = stored.map(|it| *it.1).collect();
        let fits = |width: &usize| {
            let is_near = |input: &usize| {
                matches!(Access::of(&axes, *input, *width), Access::Dense | Access::Stretch)
            };
            let near = self.varying().filter(is_near).map(|it| self.types[it]);
            let mut types = near.chain(results.iter().copied()).peekable();
            extent.is_multiple_of(*width)
                && types.peek().is_some()
                && (*width == 4 || types.any(|it| it == DType::Bf16))
        };
        [8, 4].into_iter().find(fits).unwrap_or(1)
    }
}

/// Returns the threads of a row of so many chunks, and where it is. The numbers of arrays are those
/// with and without inputs that all rows share.
fn threads(
    n_rows: usize,
    n_numbers: usize,
    width: usize,
    [n_arrays, n_early]: [usize; 2],
) -> (usize, Residence) {
    if n_numbers <= 32 {
        return (n_numbers.next_power_of_two(), Residence::Registers { n_chunks: 1 });
    }
    let n_chunks = |n_threads: usize| n_numbers.div_ceil(n_threads);
    let fits = |n_threads: usize, (most_of_one, most): (usize, usize)| {
        let n_elements = n_chunks(n_threads) * width;
        n_elements <= most_of_one && n_elements * n_arrays <= most
    };
    let of_lane = if n_rows < MANY_ROWS { (MOST_ELEMENTS, THREADS[0].1) } else { OF_LANE };
    if fits(32, of_lane) {
        return (32, Residence::Registers { n_chunks: n_chunks(32) });
    }
    match THREADS.into_iter().find(|it| fits(it.0, (MOST_ELEMENTS, it.1))) {
        Some((n_threads, _)) => {
            let n_chunks = n_chunks(n_threads);
            let n_threads = n_numbers.div_ceil(n_chunks).next_multiple_of(32);
            (n_threads, Residence::Registers { n_chunks })
        }
        None => {
            let n_chunks = (MOST_AT_ONCE / (n_early * width).max(1)).clamp(1, MOST_CHUNKS);
            (THREADS_OF_LONG_ROW, Residence::Memory { n_chunks })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_have_a_warp_each() {
        let in_registers = |n_chunks| Residence::Registers { n_chunks };
        assert_eq!(threads(8192, 96, 8, [9, 5]), (32, in_registers(3)));
        assert_eq!(threads(8192, 128, 8, [4, 4]), (128, in_registers(1)));
        assert_eq!(threads(100, 96, 8, [9, 5]), (96, in_registers(1)));
        assert_eq!(threads(100, 20, 8, [9, 5]), (32, in_registers(1)));
        assert_eq!(threads(8192, 6288, 8, [3, 2]).1, Residence::Memory { n_chunks: 3 });
    }
}
