//! Gradients of filters.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{Convolution, DType};

use super::{BLOCK, ConvolutionKernel, FEW_ELEMENTS, FEWEST_LEVELS, N_CELL, N_LEVELS};
use crate::cpu::{
    pack::pack,
    parallel::{N_PIECES, even_pieces, parallel_for, part_range},
    patches::Geometry,
    product::{Matrix, Workspace},
    region::Region,
};

/// A block of the filter gradient.
struct Cell {
    group: usize,
    filters: Range<usize>,
    elements: Range<usize>,
}

impl Cell {
    fn n_elements(&self) -> usize {
        self.filters.len() * self.elements.len()
    }
}

/// Elements per unit of work when partial sums are added up.
const LINE: usize = 16;

/// Returns the number of parts of the filter elements, and the number of pieces of the pixels. The
/// parts do not affect results. The pieces do, so they are the same for all numbers of threads.
pub(super) fn cuts(it: &Convolution, geometry: &Geometry, n_threads: usize) -> (usize, usize) {
    let depth = it.channels * geometry.n_elements();
    let n_blocks = it.groups * it.filters.div_ceil(BLOCK);
    let fewest = depth.div_ceil(N_CELL / it.filters.clamp(1, BLOCK));
    let most = it.batch * geometry.n_pixels() / FEWEST_LEVELS;
    let n_units = it.batch * geometry.n_pixels().div_ceil(N_LEVELS);
    let n_pieces = even_pieces((N_PIECES / (n_blocks * fewest).max(1)).min(most).min(n_units));
    let n_shares = |n_parts: usize| n_parts * n_blocks * n_pieces;
    let is_even = |it: &usize| n_shares(*it).is_multiple_of(n_threads);
    let even = (fewest..fewest + n_threads).find(is_even);
    // Cells are as large as possible, because each packs all results.
    let is_coarse = n_shares(fewest) < 4 * n_threads;
    let n_parts = even.filter(|it| is_coarse && depth >= it * FEW_ELEMENTS).unwrap_or(fewest);
    (n_parts, n_pieces)
}

impl ConvolutionKernel {
    fn n_cells(&self) -> usize {
        self.convolution.groups * self.convolution.filters.div_ceil(BLOCK) * self.n_parts
    }

    /// Returns true if there are too few cells for all threads. Threads then share the pieces of
    /// each cell, whose sums are the same either way.
    fn shares_pieces(&self) -> bool {
        let (n_cells, n_threads) = (self.n_cells(), self.n_threads);
        self.n_pieces > 1 && n_cells < 4 * n_threads && !n_cells.is_multiple_of(n_threads)
    }

    /// Returns the number of partial sums of all pieces, if threads share pieces.
    pub(super) fn n_partial(&self) -> usize {
        let n_gradient = self.convolution.groups * self.sizes[1];
        if self.shares_pieces() { self.n_pieces * n_gradient } else { 0 }
    }

    /// Computes the gradient of all filters, cell by cell, and for each cell piece by piece of the
    /// pixels.
    ///
    /// # Safety
    /// As [`Self::forward`].
    ///
    /// # Panics
    /// If the memory is too small.
    pub(super) unsafe fn filter(
        &self,
        workspaces: &mut [Workspace],
        scratch: &mut [f32],
        regions: [Region; 3],
        work: usize,
    ) {
        let n_cells = self.n_cells();
        if self.shares_pieces() {
            let scratch = &mut scratch[..self.n_partial()];
            let (pointer, n_elements) = (scratch.as_mut_ptr(), scratch.len());
            let sums = Region { pointer, n_elements, dtype: DType::F32 };
            parallel_for(workspaces, n_cells * self.n_pieces, work, |workspace, units| {
                for unit in units {
                    let (cell, piece) = (self.cell(unit / self.n_pieces), unit % self.n_pieces);
                    let to = self.place(sums, &cell, piece);
                    // SAFETY: required of the caller; each piece of a cell has its own memory.
                    unsafe { self.sum_filter(workspace, regions, &cell, piece, to) };
                }
            });
            // SAFETY: as above; all pieces are complete.
            return unsafe { self.join(workspaces, sums, regions[2]) };
        }
        parallel_for(workspaces, n_cells, work, |workspace, cells| {
            let (sum, total) = (workspace.second_spare(), workspace.spare());
            for cell in cells.map(|it| self.cell(it)) {
                for piece in 0..self.n_pieces {
                    let to = if piece == 0 { total } else { sum };
                    // SAFETY: required of the caller; only spare memory is written.
                    unsafe { self.sum_filter(workspace, regions, &cell, piece, to) };
                    if piece > 0 {
                        // SAFETY: the cell fits in the spare memory.
                        unsafe { (self.add)(total, sum, cell.n_elements()) };
                    }
                }
                let elements = cell.elements.clone();
                // SAFETY: required of the caller; cells are disjoint.
                unsafe { self.store_filter(total, regions[2], &cell, elements) };
            }
        });
    }

    fn cell(&self, number: usize) -> Cell {
        let Convolution { filters, .. } = self.convolution;
        let n_blocks = filters.div_ceil(BLOCK);
        let (block, part) = (number / self.n_parts, number % self.n_parts);
        Cell {
            group: block / n_blocks,
            filters: part_range(filters, block % n_blocks, n_blocks),
            elements: part_range(self.depth, part, self.n_parts),
        }
    }

    /// Returns the start of the partial sums of a piece of a cell.
    fn place(&self, sums: Region, cell: &Cell, piece: usize) -> *mut f32 {
        let before = cell.filters.start * self.depth + cell.filters.len() * cell.elements.start;
        sums.at((piece * self.convolution.groups + cell.group) * self.sizes[1] + before)
    }

    /// Adds up the partial sums of all pieces in order.
    ///
    /// # Safety
    /// As [`Self::forward`]; the sums of all pieces are complete, and nothing else uses them.
    unsafe fn join(&self, workspaces: &mut [Workspace], sums: Region, result: Region) {
        let n_lines = self.depth.div_ceil(self.n_parts).div_ceil(LINE);
        parallel_for(workspaces, self.n_cells() * n_lines, sums.n_elements, |_, units| {
            for unit in units {
                let (cell, line) = (self.cell(unit / n_lines), unit % n_lines);
                let first = cell.elements.start + line * LINE;
                let elements = first..cell.elements.end.min(first + LINE);
                let (skipped, n) =
                    (line * LINE * cell.filters.len(), elements.len() * cell.filters.len());
                let at = |piece| self.place(sums, &cell, piece).wrapping_add(skipped);
                for piece in 1..self.n_pieces {
                    // SAFETY: required of the caller; units are disjoint.
                    unsafe { (self.add)(at(0), at(piece), n) };
                }
                // SAFETY: as above.
                unsafe { self.store_filter(at(0), result, &cell, elements) };
            }
        });
    }

    /// Sums a piece of the pixels for a cell. The gradients of one element are contiguous.
    ///
    /// # Safety
    /// As [`Self::forward`]; the memory holds the cell, and nothing else uses it.
    unsafe fn sum_filter(
        &self,
        workspace: &mut Workspace,
        [images, results, _]: [Region; 3],
        cell: &Cell,
        piece: usize,
        to: *mut f32,
    ) {
        let n_pixels = self.geometry.n_pixels();
        let n_blocks = n_pixels.div_ceil(N_LEVELS);
        let total = Matrix { start: to, row: 1, column: cell.filters.len() };
        // SAFETY: required of the caller.
        unsafe { to.write_bytes(0, cell.n_elements()) };
        for unit in part_range(self.convolution.batch * n_blocks, piece, self.n_pieces) {
            let (image, pixel) = (unit / n_blocks, unit % n_blocks * N_LEVELS);
            let product = image * self.convolution.groups + cell.group;
            let from = product * self.sizes[2] + cell.filters.start * n_pixels + pixel;
            let left = Matrix { start: results.at(from), row: n_pixels, column: 1 };
            let image = images.at(product * self.sizes[0]);
            let right = self.patches(image, pixel, cell.elements.start);
            let n_levels = N_LEVELS.min(n_pixels - pixel);
            let sizes = (cell.filters.len(), cell.elements.len(), n_levels);
            // SAFETY: required of the caller.
            unsafe { workspace.multiply_add(sizes, left, right, total) };
        }
    }

    /// Stores some elements of a cell from `total`.
    ///
    /// # Safety
    /// The result has these elements, and nothing else writes to them.
    unsafe fn store_filter(
        &self,
        total: *mut f32,
        result: Region,
        cell: &Cell,
        elements: Range<usize>,
    ) {
        let from = Matrix { start: total, row: cell.filters.len(), column: 1 };
        let place = cell.group * self.sizes[1] + cell.filters.start * self.depth;
        let to = result.at(place + elements.start);
        // SAFETY: required of the caller.
        unsafe { pack(from, elements.len(), cell.filters.len(), to, self.depth) };
    }
}
