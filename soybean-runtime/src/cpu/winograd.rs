//! Convolutions with 3 x 3 filters by transforms: for 2 x 2 pixels of a result, 16 products instead of 36. Images, filters and results are
//! transformed tile by tile, and each of the 16 elements of a tile has a matrix product of its own, over filters and channels.
//!
//! Source: Lavin & Gray, "Fast algorithms for convolutional neural networks", 2016, `F(2 x 2, 3 x 3)`.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::Convolution;

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    engine::Region,
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
    product::{Matrix, Workspace, copy_short},
    share::share,
};

/// Elements of a transformed tile.
const N: usize = 16;
/// Tiles of a block: with the wide instruction sets they are a panel of a product as they lie.
const BLOCK: usize = 64;
/// With fewer channels or filters the transforms cost more than they save.
const FEWEST_CHANNELS: usize = 16;
/// Blocks for each thread, so that all have about as much to do.
const FEWEST_BLOCKS: usize = 2;

/// A convolution with 3 x 3 filters at stride 1 made ready, of the forward form.
pub(crate) struct Winograd {
    shape: Shape,
    n_parts: usize,
    filters: Filters,
    read: Read,
    write: Write,
}

/// The sizes of a convolution, and of its tiles.
struct Shape {
    batch: usize,
    channels: usize,
    filters: usize,
    image: [usize; 2],
    result: [usize; 2],
    padding: [usize; 2],
    tiles: [usize; 2],
    /// Whether filters and channels are swapped, and each filter begins at its end: gradients of images.
    is_turned: bool,
}

/// Transforms the filters with these numbers: `[elements, filters, channels]` from the filters of a convolution.
type Filters = unsafe fn(&Shape, Range<usize>, *const f32, *mut f32);
/// Transforms the tiles of a block: `[elements, channels, tiles]` from images.
type Read = unsafe fn(&Shape, Range<usize>, *const f32, *mut f32);
/// Transforms a block back: the tiles' pixels of results from `[elements, filters, tiles]`.
type Write = unsafe fn(&Shape, Range<usize>, *const f32, *mut f32);

/// Neighbouring tiles of one row of an image.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// The position of the first in the block.
    at: usize,
    image: usize,
    row: usize,
    column: usize,
    n: usize,
}

impl Winograd {
    /// The convolution of the forward form made ready, if transforms pay; `is_turned` says that its filters are those of a form with channels
    /// and filters swapped.
    pub(crate) fn new(
        convolution: &Convolution,
        is_turned: bool,
        isa: Isa,
        n_threads: usize,
    ) -> Option<Self> {
        let Convolution { batch, groups, channels, filters, image, result, padding, .. } =
            *convolution;
        let Convolution { window, stride, dilation, .. } = *convolution;
        let tiles = result.map(|it| it.div_ceil(2));
        let n_blocks = (batch * tiles[0] * tiles[1]).div_ceil(BLOCK);
        let is_plain = groups == 1 && window == [3, 3] && stride == [1, 1] && dilation == [1, 1];
        if !is_plain
            || channels.min(filters) < FEWEST_CHANNELS
            || n_blocks < FEWEST_BLOCKS * n_threads
        {
            return None;
        }
        let shape = Shape { batch, channels, filters, image, result, padding, tiles, is_turned };
        Some(Self {
            shape,
            n_parts: n_threads,
            filters: transform_filters(isa),
            read: read_tiles(isa),
            write: write_tiles(isa),
        })
    }

    /// The number of elements for which a call needs room.
    pub(crate) const fn n_room(&self) -> usize {
        self.n_filters() + self.n_parts * self.n_part()
    }

    const fn n_filters(&self) -> usize {
        N * self.shape.filters * self.shape.channels
    }

    const fn n_part(&self) -> usize {
        N * (self.shape.filters + self.shape.channels) * BLOCK
    }

    /// Runs the convolution; regions are images, filters and results.
    ///
    /// # Safety
    /// The regions have the elements of the convolution, and nobody else uses them during the call.
    ///
    /// # Panics
    /// If there is not enough room.
    pub(crate) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        room: &mut [f32],
        [images, filters, results]: [Region; 3],
    ) {
        let room = &mut room[..self.n_room()];
        let room =
            Region { pointer: room.as_mut_ptr(), n_elements: room.len(), dtype: filters.dtype };
        let (shape, n_filters) = (&self.shape, self.n_filters());
        share(workspaces, shape.filters, 2 * n_filters, |_, range| {
            // SAFETY: required of the caller; each filter is written once.
            unsafe { (self.filters)(shape, range, filters.at(0), room.at(0)) };
        });
        let n_tiles = shape.n_tiles();
        let n_blocks = n_tiles.div_ceil(BLOCK);
        let work = n_tiles * 2 * shape.filters * shape.channels;
        share(workspaces, self.n_parts, work, |workspace, parts| {
            for part in parts {
                let from = room.at(n_filters + part * self.n_part());
                let to = from.wrapping_add(N * shape.channels * BLOCK);
                let bound = |part: usize| part * n_blocks / self.n_parts;
                for block in bound(part)..bound(part + 1) {
                    let tiles = block * BLOCK..n_tiles.min((block + 1) * BLOCK);
                    // SAFETY: required of the caller; parts have room of their own.
                    unsafe { (self.read)(shape, tiles.clone(), images.at(0), from) };
                    // SAFETY: as above.
                    unsafe { shape.multiply(workspace, room.at(0), from, to) };
                    // SAFETY: as above; blocks are different pixels.
                    unsafe { (self.write)(shape, tiles, to, results.at(0)) };
                }
            }
        });
    }
}

impl Shape {
    const fn n_tiles(&self) -> usize {
        self.batch * self.tiles[0] * self.tiles[1]
    }

    /// The product of each element: tiles by channels times channels by filters.
    ///
    /// # Safety
    /// The places have the elements of a block, and of all filters; nobody else uses those of the result.
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

    fn stretches(&self, tiles: Range<usize>) -> Stretches {
        let [height, width] = self.tiles;
        let (mut stretches, mut n, mut tile) = ([Stretch::default(); BLOCK], 0, tiles.start);
        while tile < tiles.end {
            let column = tile % width;
            let stretch = Stretch {
                at: tile - tiles.start,
                image: tile / width / height,
                row: tile / width % height,
                column,
                n: (width - column).min(tiles.end - tile),
            };
            stretches[n] = stretch;
            (n, tile) = (n + 1, tile + stretch.n);
        }
        (stretches, n)
    }

    /// Copies the pixels of a row that the tiles of a stretch see; outside the image they are 0.
    ///
    /// # Safety
    /// The plane has the image's elements, and nobody writes there.
    #[inline(always)]
    unsafe fn fetch(&self, plane: *const f32, stretch: Stretch, row: usize, to: &mut [f32]) {
        let to = &mut to[..2 * stretch.n + 2];
        let row = (2 * stretch.row + row).wrapping_sub(self.padding[0]);
        if row >= self.image[0] {
            return to.fill(0.0);
        }
        let (first, width) = (2 * stretch.column, self.image[1]);
        let low = self.padding[1].saturating_sub(first).min(to.len());
        let high = (self.padding[1] + width).saturating_sub(first).clamp(low, to.len());
        let from = plane.wrapping_add(row * width + first + low).wrapping_sub(self.padding[1]);
        to[..low].fill(0.0);
        to[high..].fill(0.0);
        // SAFETY: required of the caller; these pixels are within the row.
        unsafe { copy_short(from, to[low..high].as_mut_ptr(), high - low) };
    }
}

/// Tiles whose pixels are sorted at once; those behind the last of a stretch are written over by the next stretch.
const LANES: usize = 16;
/// Pixels of a row of each tile of a block: for each stretch a pair more than it has tiles.
type Row = [f32; 2 * (2 * BLOCK + LANES)];
/// A number for each tile of a block.
type Tiles = [f32; BLOCK];
/// The stretches of a block, as many as there are.
type Stretches = ([Stretch; BLOCK], usize);

for_each_isa! {
    transform_filters [] [] Filters,
    transform_filters_body (shape: &Shape, range: Range<usize>, from: *const f32, to: *mut f32)
}

for_each_isa! {
    read_tiles [] [] Read, read_tiles_body (shape: &Shape, tiles: Range<usize>, from: *const f32, to: *mut f32)
}

for_each_isa! {
    write_tiles [] [] Write, write_tiles_body (shape: &Shape, tiles: Range<usize>, from: *const f32, to: *mut f32)
}

/// `G g`, for a column of a filter.
#[inline(always)]
fn widened([a, b, c]: [f32; 3]) -> [f32; 4] {
    [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
}

/// `U = G g G^T`
///
/// # Safety
/// The convolution has these filters, and `to` has room for all.
#[inline(always)]
unsafe fn transform_filters_body<M: MultiplyAdd>(
    shape: &Shape,
    range: Range<usize>,
    from: *const f32,
    to: *mut f32,
) {
    let (n_filters, n_channels) = (shape.filters, shape.channels);
    for filter in range {
        for channel in 0..n_channels {
            let number = if shape.is_turned {
                channel * n_filters + filter
            } else {
                filter * n_channels + channel
            };
            // SAFETY: required of the caller.
            let mut g = unsafe { from.wrapping_add(number * 9).cast::<[f32; 9]>().read() };
            if shape.is_turned {
                g.reverse();
            }
            let rows = [0, 1, 2].map(|row| widened([g[3 * row], g[3 * row + 1], g[3 * row + 2]]));
            let columns = [0, 1, 2, 3].map(|it| widened([rows[0][it], rows[1][it], rows[2][it]]));
            for element in 0..N {
                let place = (element * n_filters + filter) * n_channels + channel;
                // SAFETY: as above.
                unsafe { to.wrapping_add(place).write(columns[element % 4][element / 4]) };
            }
        }
    }
}

/// `B^T d`, for four rows or columns.
#[inline(always)]
fn differences([a, b, c, d]: [f32; 4]) -> [f32; 4] {
    [a - c, b + c, c - b, b - d]
}

/// `V = B^T d B`
///
/// # Safety
/// The images have these tiles, and `to` has room for a block.
#[inline(always)]
unsafe fn read_tiles_body<M: MultiplyAdd>(
    shape: &Shape,
    tiles: Range<usize>,
    from: *const f32,
    to: *mut f32,
) {
    let n_pixels = shape.image[0] * shape.image[1];
    let (stretches, n_stretches) = shape.stretches(tiles);
    let mut pixels = [[0.0; 2 * (2 * BLOCK + LANES)]; 4];
    let mut rows = [[[0.0; BLOCK + LANES]; 4]; 4];
    let (mut half, mut whole) = ([[[0.0; BLOCK]; 4]; 4], [[0.0; BLOCK]; 4]);
    for channel in 0..shape.channels {
        // All rows first: vectors that are read where others were just written in another position have to wait for these.
        for (number, stretch) in stretches[..n_stretches].iter().enumerate() {
            let plane = from.wrapping_add((stretch.image * shape.channels + channel) * n_pixels);
            for (row, pixels) in pixels.iter_mut().enumerate() {
                let to = &mut pixels[2 * (stretch.at + number)..];
                // SAFETY: required of the caller.
                unsafe { shape.fetch(plane, *stretch, row, to) };
            }
        }
        for ((pixels, row), half) in pixels.iter().zip(&mut rows).zip(&mut half) {
            for (number, stretch) in stretches[..n_stretches].iter().enumerate() {
                sort(pixels, number, row, *stretch);
            }
            transform(row.each_ref().map(|it| it.first_chunk().expect("longer")), half);
        }
        for column in 0..4 {
            transform(half.each_ref().map(|it| &it[column]), &mut whole);
            for (row, values) in whole.iter().enumerate() {
                let place = ((4 * row + column) * shape.channels + channel) * BLOCK;
                // SAFETY: required of the caller.
                unsafe { to.wrapping_add(place).cast::<Tiles>().write(*values) };
            }
        }
    }
}

/// Sorts the pixels of a row of the stretch with this number by their column in the tile.
#[inline(always)]
fn sort(pixels: &Row, number: usize, to: &mut [[f32; BLOCK + LANES]; 4], stretch: Stretch) {
    let pairs = &pixels.as_chunks::<2>().0[stretch.at + number..];
    for first in (0..stretch.n).step_by(LANES) {
        let here: &[[f32; 2]; LANES] = pairs[first..].first_chunk().expect("longer");
        let next: &[[f32; 2]; LANES] = pairs[first + 1..].first_chunk().expect("longer");
        for (column, to) in to.iter_mut().enumerate() {
            let from = if column < 2 { here } else { next };
            let to: &mut [f32; LANES] = to[stretch.at + first..].first_chunk_mut().expect("longer");
            for (to, pair) in to.iter_mut().zip(from) {
                *to = pair[column % 2];
            }
        }
    }
}

/// [`differences`] for each tile.
#[inline(always)]
fn transform([a, b, c, d]: [&Tiles; 4], to: &mut [Tiles; 4]) {
    let [first, second, third, fourth] = to;
    for tile in 0..BLOCK {
        let values = differences([a[tile], b[tile], c[tile], d[tile]]);
        [first[tile], second[tile], third[tile], fourth[tile]] = values;
    }
}

/// `A^T m`, for four rows or columns.
#[inline(always)]
fn sums([a, b, c, d]: [f32; 4]) -> [f32; 2] {
    [a + b + c, b - c - d]
}

/// `Y = A^T M A`
///
/// # Safety
/// `from` has a block, and the results have these tiles, which nobody else uses.
#[inline(always)]
unsafe fn write_tiles_body<M: MultiplyAdd>(
    shape: &Shape,
    tiles: Range<usize>,
    from: *const f32,
    to: *mut f32,
) {
    let [height, width] = shape.result;
    let (stretches, n_stretches) = shape.stretches(tiles);
    let mut half = [[[0.0; BLOCK]; 4]; 2];
    let mut rows = [[0.0; 2 * BLOCK]; 2];
    for filter in 0..shape.filters {
        for column in 0..4 {
            let of_row = |row: usize| {
                let place = ((4 * row + column) * shape.filters + filter) * BLOCK;
                // SAFETY: required of the caller.
                unsafe { &*from.wrapping_add(place).cast::<Tiles>() }
            };
            let (elements, [upper, lower]) = ([0, 1, 2, 3].map(of_row), &mut half);
            for tile in 0..BLOCK {
                let sums = sums(elements.map(|it| it[tile]));
                (upper[column][tile], lower[column][tile]) = (sums[0], sums[1]);
            }
        }
        for (half, row) in half.iter().zip(&mut rows) {
            for (tile, pair) in row.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                *pair = sums([half[0][tile], half[1][tile], half[2][tile], half[3][tile]]);
            }
        }
        for stretch in &stretches[..n_stretches] {
            let plane = to.wrapping_add((stretch.image * shape.filters + filter) * height * width);
            let n = (2 * stretch.n).min(width - 2 * stretch.column);
            for (number, row) in rows.iter().enumerate().take(height - 2 * stretch.row) {
                let place = (2 * stretch.row + number) * width + 2 * stretch.column;
                let from = row[2 * stretch.at..].as_ptr();
                // SAFETY: required of the caller.
                unsafe { copy_short(from, plane.wrapping_add(place), n) };
            }
        }
    }
}
