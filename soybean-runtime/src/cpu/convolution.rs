//! Convolutions and their gradients, as products with the patches of images, which are never stored
//! as a whole. Groups of few channels have loops of their own (`direct`).
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod direct;
mod filter;

use std::ops::Range;

use soybean_plan::{Combine, Convolution, ConvolutionForm, ImageLayout};

use self::direct::Direct;
use super::{
    channels_last::{ChannelsLastKernel, Images},
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::{parallel_for, part_range},
    patches::{Geometry, Patches},
    product::{Matrix, N_SPARE, Workspace},
    region::Region,
    vector::{Accumulate, accumulate_each},
    winograd::Winograd,
};
use crate::{Error, ErrorKind};

/// The number of multiply-adds that take the time of one operation of other kernels.
const PRODUCTS_PER_OPERATION: usize = 8;
/// The pixels, filters or filter elements of a block: the product of two fits in the spare memory.
const BLOCK: usize = 256;
const _: () = assert!(BLOCK * BLOCK <= N_SPARE);
/// The maximum number of elements of a cell of gradients of filters, which is also in spare memory.
const N_CELL: usize = N_SPARE / BLOCK * BLOCK;
/// Cells of gradients with fewer filter elements take longer to pack than to multiply.
const FEW_ELEMENTS: usize = 32;
/// The pixels over which a unit of work sums gradients of filters.
const N_LEVELS: usize = 384;
/// The minimum number of pixels over which a piece sums gradients of filters before it is added to
/// others.
const FEWEST_LEVELS: usize = 2 * N_LEVELS;

/// A prepared [`Convolution`].
pub(crate) struct ConvolutionKernel {
    convolution: Convolution,
    /// True if the filters are transposed and flipped first.
    is_transposed: bool,
    geometry: Geometry,
    /// The elements of one image, one group of filters, and one result of one group.
    sizes: [usize; 3],
    /// The elements of a filter.
    depth: usize,
    /// The number of parts of the filters (forward), of the channels (gradients of images) or of
    /// the filter elements (gradients of filters).
    n_parts: usize,
    n_threads: usize,
    /// The number of pieces of the pixels over which gradients of filters are summed.
    n_pieces: usize,
    /// The loop that adds the sums of pieces.
    add: Accumulate,
    /// The Winograd algorithm, if it is faster.
    winograd: Option<Winograd>,
    /// The loops over shifted planes, if they are faster.
    direct: Option<Direct>,
}

impl Prepare for Convolution {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        let first = Self { layout: ImageLayout::ChannelsFirst, ..*self };
        let kernel = Box::new(ConvolutionKernel::new(&first, threads.isa, threads.len()));
        match self.layout {
            ImageLayout::ChannelsFirst => kernel,
            ImageLayout::ChannelsLast => {
                let ([left, right], result) = operands(self);
                let inputs = [left, right];
                Box::new(ChannelsLastKernel::new(kernel, &inputs, result, threads.len()))
            }
        }
    }
}

/// Returns the extents of the two inputs and of the result.
fn operands(convolution: &Convolution) -> ([Images; 2], Images) {
    let Convolution { batch, groups, channels, filters, image, window, result, .. } = *convolution;
    let images = Images([batch, image[0] * image[1], groups * channels]);
    let weights = Images([groups * filters, window[0] * window[1], channels]);
    let results = Images([batch, result[0] * result[1], groups * filters]);
    match convolution.form {
        ConvolutionForm::Forward => ([images, weights], results),
        ConvolutionForm::Data => ([results, weights], images),
        ConvolutionForm::Filter => ([images, results], weights),
    }
}

impl CpuKernel for ConvolutionKernel {
    fn n_scratch(&self) -> usize {
        if let Some(direct) = &self.direct {
            return direct.n_scratch();
        }
        match self.convolution.form {
            ConvolutionForm::Filter => self.n_partial(),
            ConvolutionForm::Forward | ConvolutionForm::Data => {
                self.winograd.as_ref().map_or_else(|| self.n_transposed(), Winograd::n_scratch)
            }
        }
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let ([left, right], result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.workspaces, arguments.scratch, [left, right, result]) }
    }
}

impl ConvolutionKernel {
    pub(crate) fn new(convolution: &Convolution, isa: Isa, n_threads: usize) -> Self {
        let direct = Direct::new(convolution, isa);
        let transposed = transposed(convolution).filter(|_| direct.is_none());
        let winograd = match convolution.form {
            ConvolutionForm::Forward => Winograd::new(convolution, false, isa, n_threads),
            ConvolutionForm::Data => {
                transposed.and_then(|it| Winograd::new(&it, true, isa, n_threads))
            }
            ConvolutionForm::Filter => None,
        };
        let (convolution, is_transposed) =
            (transposed.as_ref().unwrap_or(convolution), transposed.is_some());
        let Convolution { batch, groups, channels, filters, .. } = *convolution;
        let add = accumulate_each(Combine::Sum, isa);
        let geometry = Geometry::new(convolution, isa);
        let depth = channels * geometry.n_elements();
        let n_products = batch * groups;
        let missing = |n_units: usize| n_threads.div_ceil(n_units.max(1));
        let (n_parts, n_pieces) = match convolution.form {
            ConvolutionForm::Forward => {
                let n_blocks = geometry.n_pixels().div_ceil(BLOCK);
                (missing(n_products * n_blocks).min(filters), 1)
            }
            ConvolutionForm::Data => (missing(n_products).min(channels), 1),
            ConvolutionForm::Filter => filter::cuts(convolution, &geometry, n_threads),
        };
        Self {
            convolution: *convolution,
            is_transposed,
            sizes: [
                channels * geometry.n_image_pixels(),
                filters * depth,
                filters * geometry.n_pixels(),
            ],
            geometry,
            depth,
            n_parts,
            n_threads,
            n_pieces,
            add,
            winograd,
            direct,
        }
    }

    /// Returns the number of elements of transposed filters.
    const fn n_transposed(&self) -> usize {
        if self.is_transposed { self.convolution.groups * self.sizes[1] } else { 0 }
    }

    /// Runs the kernel. Regions are left, right and result.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    ///
    /// # Panics
    /// Panics if there is not enough scratch space.
    pub(crate) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        scratch: &mut [f32],
        mut regions: [Region; 3],
    ) -> Result<(), Error> {
        self.check(regions)?;
        if let Some(direct) = &self.direct {
            // SAFETY: the regions were checked to have the elements that are needed.
            unsafe { direct.run(workspaces, scratch, regions) };
            return Ok(());
        }
        if let Some(winograd) = &self.winograd {
            // SAFETY: the regions were checked to have the elements that are needed.
            unsafe { winograd.run(workspaces, scratch, regions) };
            return Ok(());
        }
        let Convolution { batch, groups, form, .. } = self.convolution;
        let n_products = batch * groups;
        let work = n_products * self.sizes[2] * self.depth / PRODUCTS_PER_OPERATION;
        if self.is_transposed {
            let pointer = scratch[..self.n_transposed()].as_mut_ptr();
            let transposed = Region { pointer, ..regions[1] };
            // SAFETY: the filters were checked to have the elements that are needed, and the
            // scratch space holds as many.
            unsafe { self.transpose_filters(workspaces, regions[1], transposed) };
            regions[1] = transposed;
        }
        match form {
            ConvolutionForm::Forward => {
                let n_blocks = self.geometry.n_pixels().div_ceil(BLOCK) * self.n_parts;
                parallel_for(workspaces, n_products * n_blocks, work, |workspace, units| {
                    for unit in units {
                        let (product, block) = (unit / n_blocks, unit % n_blocks);
                        // SAFETY: the regions were checked to have the elements that are needed;
                        // units write different ones.
                        unsafe { self.forward(workspace, regions, product, block) };
                    }
                });
            }
            ConvolutionForm::Data => {
                parallel_for(workspaces, n_products * self.n_parts, work, |workspace, units| {
                    for unit in units {
                        let (product, part) = (unit / self.n_parts, unit % self.n_parts);
                        let channels = part_range(self.convolution.channels, part, self.n_parts);
                        // SAFETY: as above.
                        unsafe { self.data(workspace, regions, product, channels) };
                    }
                });
            }
            // SAFETY: as above.
            ConvolutionForm::Filter => unsafe { self.filter(workspaces, scratch, regions, work) },
        }
        Ok(())
    }

    /// Copies filters with channels and filters swapped, each flipped in both dims.
    ///
    /// # Safety
    /// Both have all filters, and nobody else uses them.
    unsafe fn transpose_filters(
        &self,
        workspaces: &mut [Workspace],
        filters: Region,
        transposed: Region,
    ) {
        let Convolution { groups, channels, filters: n_filters, .. } = self.convolution;
        let n = self.geometry.n_elements();
        parallel_for(workspaces, groups * n_filters, 2 * self.n_transposed(), |_, rows| {
            for (row, channel) in rows.flat_map(|row| (0..channels).map(move |it| (row, it))) {
                let (group, filter) = (row / n_filters, row % n_filters);
                let from = filters.at(((group * channels + channel) * n_filters + filter) * n);
                let to = transposed.at((row * channels + channel) * n);
                for element in 0..n {
                    // SAFETY: required of the caller.
                    let value = unsafe { from.wrapping_add(element).read() };
                    // SAFETY: as above; rows are different elements.
                    unsafe { to.wrapping_add(n - 1 - element).write(value) };
                }
            }
        });
    }

    /// Computes a block of pixels of the results of one image, for a part of the filters of one
    /// group.
    ///
    /// # Safety
    /// As [`Self::run`]; the regions have the elements that are needed.
    unsafe fn forward(
        &self,
        workspace: &mut Workspace,
        [images, filters, results]: [Region; 3],
        product: usize,
        block: usize,
    ) {
        let (n_pixels, depth) = (self.geometry.n_pixels(), self.depth);
        let (pixel, part) = (block / self.n_parts * BLOCK, block % self.n_parts);
        let part = part_range(self.convolution.filters, part, self.n_parts);
        let group = product % self.convolution.groups;
        let sizes = (BLOCK.min(n_pixels - pixel), part.len(), depth);
        let to = product * self.sizes[2] + part.start * n_pixels + pixel;
        let result = Matrix { start: results.at(to), row: 1, column: n_pixels };
        let patches = self.patches(images.at(product * self.sizes[0]), pixel, 0);
        let filters = filters.at(group * self.sizes[1] + part.start * depth);
        let filters = Matrix { start: filters, row: 1, column: depth };
        // SAFETY: required of the caller.
        unsafe { workspace.multiply(sizes, patches, filters, result) };
    }

    /// Computes the gradient of some channels of one image in one group. Blocks of the gradient of
    /// patches are added to the pixels.
    ///
    /// # Safety
    /// As [`Self::forward`].
    unsafe fn data(
        &self,
        workspace: &mut Workspace,
        [results, filters, images]: [Region; 3],
        product: usize,
        channels: Range<usize>,
    ) {
        let (n_pixels, n_image_pixels) = (self.geometry.n_pixels(), self.geometry.n_image_pixels());
        let image = images.at(product * self.sizes[0]);
        let part = image.wrapping_add(channels.start * n_image_pixels);
        // SAFETY: required of the caller.
        unsafe { part.write_bytes(0, channels.len() * n_image_pixels) };
        let n_filters = self.convolution.filters;
        if n_filters == 0 {
            return;
        }
        let results = results.at(product * self.sizes[2]);
        let results = Matrix { start: results, row: 1, column: n_pixels };
        let filters = filters.at(product % self.convolution.groups * self.sizes[1]);
        let filters = Matrix { start: filters, row: self.depth, column: 1 };
        let elements = [channels.start, channels.end].map(|it| it * self.geometry.n_elements());
        for pixel in (0..n_pixels).step_by(BLOCK) {
            let n_pixels = BLOCK.min(n_pixels - pixel);
            for element in (elements[0]..elements[1]).step_by(BLOCK) {
                let n_elements = BLOCK.min(elements[1] - element);
                let block = Matrix { start: workspace.spare(), row: 1, column: n_pixels };
                let (left, right) = (results.from(pixel, 0), filters.from(0, element));
                let sizes = (n_pixels, n_elements, n_filters);
                // SAFETY: required of the caller; the block fits in the spare memory.
                unsafe { workspace.multiply(sizes, left, right, block) };
                let (pixels, elements) = ((pixel, n_pixels), (element, n_elements));
                // SAFETY: required of the caller; the elements are of these channels.
                unsafe { self.geometry.add_patches(block, image, pixels, elements) };
            }
        }
    }

    const fn patches(&self, image: *const f32, pixel: usize, element: usize) -> Patches<'_> {
        Patches { geometry: &self.geometry, image, pixel, element }
    }

    fn check(&self, regions: [Region; 3]) -> Result<(), Error> {
        let Convolution { batch, groups, form, .. } = self.convolution;
        let [image, filter, result] = self.sizes;
        let (images, filters, results) =
            (batch * groups * image, groups * filter, batch * groups * result);
        let expected = match form {
            ConvolutionForm::Forward => [images, filters, results],
            ConvolutionForm::Data => [results, filters, images],
            ConvolutionForm::Filter => [images, results, filters],
        };
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let names = ["left", "right", "result"];
        for ((region, expected), name) in regions.iter().zip(expected).zip(names) {
            if region.n_elements < expected {
                let found = region.n_elements;
                return fault(format!("{name}: expected {expected} elements, found {found}"));
            }
        }
        if regions[..2].iter().any(|it| it.overlaps(&regions[2])) {
            return fault("result: expected memory apart from the operands".to_owned());
        }
        Ok(())
    }
}

/// Returns the gradient of images as a convolution of the gradient of results with flipped filters,
/// if that is faster. There must be no gap between neighboring results, and no padding that a
/// whole filter sees. With few channels there is too little work for each patch.
fn transposed(convolution: &Convolution) -> Option<Convolution> {
    let Convolution { window, padding, dilation, .. } = *convolution;
    let is_worth = 2 * convolution.channels >= convolution.filters;
    if convolution.form != ConvolutionForm::Data || convolution.stride != [1, 1] || !is_worth {
        return None;
    }
    let margin =
        |dim: usize| (dilation[dim] * window[dim].checked_sub(1)?).checked_sub(padding[dim]);
    Some(Convolution {
        form: ConvolutionForm::Forward,
        channels: convolution.filters,
        filters: convolution.channels,
        image: convolution.result,
        result: convolution.image,
        padding: [margin(0)?, margin(1)?],
        ..*convolution
    })
}

#[cfg(test)]
mod tests;
