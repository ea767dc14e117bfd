//! Gradients of filters.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::Convolution;

use super::{BLOCK, ConvolutionKernel, N_LEVELS, part_of};
use crate::cpu::{
    engine::Region,
    pack::pack,
    product::{Matrix, Workspace},
    share::share,
};

/// A block of the gradient of filters.
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

impl ConvolutionKernel {
    /// The gradient of all filters, cell by cell. Threads share out the cells, or if these are few, the pixels that each one sums.
    ///
    /// # Safety
    /// As [`Self::forward`].
    pub(super) unsafe fn filter(
        &self,
        workspaces: &mut [Workspace],
        regions: [Region; 3],
        work: usize,
    ) {
        let Convolution { batch, groups, filters, .. } = self.convolution;
        let n_cells = groups * filters.div_ceil(BLOCK) * self.n_parts;
        let n_units = batch * self.geometry.n_pixels().div_ceil(N_LEVELS);
        let is_short = n_units < 4 * workspaces.len();
        if is_short && n_cells.is_multiple_of(workspaces.len()) || n_cells > 8 * workspaces.len() {
            return share(workspaces, n_cells, work, |workspace, cells| {
                for cell in cells.map(|it| self.cell(it)) {
                    // SAFETY: required of the caller; cells are different elements.
                    unsafe { self.sum_filter(workspace, regions, &cell, 0..n_units) };
                    // SAFETY: as above.
                    unsafe { self.store_filter(workspace.spare(), regions[2], &cell) };
                }
            });
        }
        for cell in (0..n_cells).map(|it| self.cell(it)) {
            // Parts that get no units contribute nothing.
            for workspace in workspaces.iter() {
                // SAFETY: the cell fits in the spare memory.
                unsafe { workspace.spare().write_bytes(0, cell.n_elements()) };
            }
            share(workspaces, n_units, work / n_cells, |workspace, units| {
                // SAFETY: required of the caller; only spare memory is written.
                unsafe { self.sum_filter(workspace, regions, &cell, units) };
            });
            let total = workspaces[0].spare();
            for workspace in &workspaces[1..] {
                // SAFETY: both are spare memory with room for the cell.
                unsafe { (self.add)(total, workspace.spare(), cell.n_elements()) };
            }
            // SAFETY: required of the caller.
            unsafe { self.store_filter(total, regions[2], &cell) };
        }
    }

    fn cell(&self, number: usize) -> Cell {
        let Convolution { filters, .. } = self.convolution;
        let n_blocks = filters.div_ceil(BLOCK);
        let (block, part) = (number / self.n_parts, number % self.n_parts);
        Cell {
            group: block / n_blocks,
            filters: part_of(filters, block % n_blocks, n_blocks),
            elements: part_of(self.depth, part, self.n_parts),
        }
    }

    /// Sums these units of a cell into spare memory, where the gradients of one element are next to one another.
    ///
    /// # Safety
    /// As [`Self::forward`].
    unsafe fn sum_filter(
        &self,
        workspace: &mut Workspace,
        [images, results, _]: [Region; 3],
        cell: &Cell,
        units: Range<usize>,
    ) {
        let n_pixels = self.geometry.n_pixels();
        let n_blocks = n_pixels.div_ceil(N_LEVELS);
        let total = Matrix { start: workspace.spare(), row: 1, column: cell.filters.len() };
        // SAFETY: the cell fits in the spare memory.
        unsafe { total.start.write_bytes(0, cell.n_elements()) };
        for unit in units {
            let (image, pixel) = (unit / n_blocks, unit % n_blocks * N_LEVELS);
            let product = image * self.convolution.groups + cell.group;
            let from = product * self.sizes[2] + cell.filters.start * n_pixels + pixel;
            let left = Matrix { start: results.at(from), row: n_pixels, column: 1 };
            let image = images.at(product * self.sizes[0]);
            let right = self.patches(image, pixel, cell.elements.start);
            let n_levels = N_LEVELS.min(n_pixels - pixel);
            let sizes = (cell.filters.len(), cell.elements.len(), n_levels);
            // SAFETY: required of the caller; the cell fits in the spare memory.
            unsafe { workspace.multiply_add(sizes, left, right, total) };
        }
    }

    /// # Safety
    /// The result has the elements that are needed, and nobody else writes to those of the cell, which `total` has.
    unsafe fn store_filter(&self, total: *mut f32, result: Region, cell: &Cell) {
        let from = Matrix { start: total, row: cell.filters.len(), column: 1 };
        let place = cell.group * self.sizes[1] + cell.filters.start * self.depth;
        let to = result.at(place + cell.elements.start);
        let (n_elements, n_filters) = (cell.elements.len(), cell.filters.len());
        // SAFETY: required of the caller.
        unsafe { pack(from, n_elements, n_filters, to, self.depth) };
    }
}
