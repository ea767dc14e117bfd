//! Winograd convolutions with 3 x 3 filters: 16 products instead of 36 for 2 x 2 pixels of a
//! result. Images, filters and results are transformed tile by tile. Each of the 16 elements of a
//! tile has its own matrix product over filters and channels.
//!
//! Source: Lavin & Gray, "Fast algorithms for convolutional neural networks", 2016, `F(2 x 2, 3 x
//! 3)`.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod tiles;

use soybean_plan::Convolution;

use self::tiles::Transforms;
use super::{
    isa::Isa,
    parallel::parallel_for,
    product::{Matrix, Workspace},
    region::Region,
};

/// Number of elements of a transformed tile.
const N: usize = 16;
/// Tiles per block. With wide instruction sets, a block is a panel of a product without packing.
const BLOCK: usize = 64;
/// With fewer channels or filters, the transforms cost more than they save.
const MIN_CHANNELS: usize = 16;
/// With fewer blocks, threads would be idle. The limit does not depend on the number of threads, so
/// that results do not either.
const MIN_BLOCKS: usize = 4;

/// A prepared forward convolution with 3 x 3 filters at stride 1.
pub(crate) struct Winograd {
    shape: Shape,
    n_parts: usize,
    transforms: Transforms,
}

/// Sizes of a convolution and its tiles.
struct Shape {
    batch: usize,
    channels: usize,
    filters: usize,
    image: [usize; 2],
    result: [usize; 2],
    padding: [usize; 2],
    tiles: [usize; 2],
    /// True for gradients of images: filters and channels are swapped, and filters are rotated by
    /// 180 degrees.
    is_transposed: bool,
}

impl Winograd {
    /// Prepares a forward convolution, if transforms pay off. `is_transposed` means that its
    /// filters are stored with channels and filters swapped.
    pub(crate) fn new(
        convolution: &Convolution,
        is_transposed: bool,
        isa: Isa,
        n_threads: usize,
    ) -> Option<Self> {
        let Convolution { batch, groups, channels, filters, image, result, padding, .. } =
            *convolution;
        let Convolution { window, stride, dilation, .. } = *convolution;
        let tiles = result.map(|it| it.div_ceil(2));
        let n_blocks = (batch * tiles[0] * tiles[1]).div_ceil(BLOCK);
        let is_plain = groups == 1 && window == [3, 3] && stride == [1, 1] && dilation == [1, 1];
        if !is_plain || channels.min(filters) < MIN_CHANNELS || n_blocks < MIN_BLOCKS {
            return None;
        }
        let shape =
            Shape { batch, channels, filters, image, result, padding, tiles, is_transposed };
        Some(Self { shape, n_parts: n_threads, transforms: Transforms::new(isa) })
    }

    /// Returns the number of elements of the scratch memory.
    pub(crate) const fn n_scratch(&self) -> usize {
        self.n_filters() + self.n_parts * self.n_part()
    }

    const fn n_filters(&self) -> usize {
        N * self.shape.filters * self.shape.channels
    }

    const fn n_part(&self) -> usize {
        N * (self.shape.filters + self.shape.channels) * BLOCK
    }

    /// Runs the convolution. The regions are images, filters and results.
    ///
    /// # Safety
    /// The regions have the elements of the convolution, and nothing else uses them during the
    /// call.
    ///
    /// # Panics
    /// If the scratch memory is too small.
    pub(crate) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        scratch: &mut [f32],
        [images, filters, results]: [Region; 3],
    ) {
        let scratch = &mut scratch[..self.n_scratch()];
        let scratch = Region {
            pointer: scratch.as_mut_ptr(),
            n_elements: scratch.len(),
            dtype: filters.dtype,
        };
        let (shape, n_filters) = (&self.shape, self.n_filters());
        parallel_for(workspaces, shape.filters, 2 * n_filters, |_, range| {
            // SAFETY: required of the caller; each filter is written once.
            unsafe { (self.transforms.filters)(shape, range, filters.at(0), scratch.at(0)) };
        });
        let n_tiles = shape.n_tiles();
        let n_blocks = n_tiles.div_ceil(BLOCK);
        let work = n_tiles * 2 * shape.filters * shape.channels;
        parallel_for(workspaces, self.n_parts, work, |workspace, parts| {
            for part in parts {
                let from = scratch.at(n_filters + part * self.n_part());
                let to = from.wrapping_add(N * shape.channels * BLOCK);
                let bound = |part: usize| part * n_blocks / self.n_parts;
                for block in bound(part)..bound(part + 1) {
                    let tiles = block * BLOCK..n_tiles.min((block + 1) * BLOCK);
                    // SAFETY: required of the caller; each part has its own memory.
                    unsafe { (self.transforms.read)(shape, tiles.clone(), images.at(0), from) };
                    // SAFETY: as above.
                    unsafe { shape.multiply(workspace, scratch.at(0), from, to) };
                    // SAFETY: as above; blocks have disjoint pixels.
                    unsafe { (self.transforms.write)(shape, tiles, to, results.at(0)) };
                }
            }
        });
    }
}

impl Shape {
    const fn n_tiles(&self) -> usize {
        self.batch * self.tiles[0] * self.tiles[1]
    }

    /// Multiplies each element: tiles by channels times channels by filters.
    ///
    /// # Safety
    /// The pointers refer to the elements of a block and of all filters. Nothing else uses those of
    /// the result.
    unsafe fn multiply(
        &self,
        workspace: &mut Workspace,
        filters: *mut f32,
        from: *mut f32,
        to: *mut f32,
    ) {
        let (n_channels, n_filters) = (self.channels, self.filters);
        for element in 0..N {
            let tiles = from.wrapping_add(element * n_channels * BLOCK);
            let left = Matrix { start: tiles, row: 1, column: BLOCK };
            let filters = filters.wrapping_add(element * n_filters * n_channels);
            let right = Matrix { start: filters, row: 1, column: n_channels };
            let result = to.wrapping_add(element * n_filters * BLOCK);
            let result = Matrix { start: result, row: 1, column: BLOCK };
            // SAFETY: required of the caller.
            unsafe { workspace.multiply((BLOCK, n_filters, n_channels), left, right, result) };
        }
    }
}
