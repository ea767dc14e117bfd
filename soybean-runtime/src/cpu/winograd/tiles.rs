//! Winograd transforms of filters, image tiles and result tiles.

use std::ops::Range;

use super::{BLOCK, N, Shape};
#[cfg(target_arch = "x86_64")]
use crate::cpu::math::Fused;
use crate::cpu::{
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
    pack::copy_short,
};

/// Reads from the first pointer and writes to the second, for filters or tiles with these indices.
type Transform = unsafe fn(&Shape, Range<usize>, *const f32, *mut f32);

/// The transforms for one instruction set.
pub(super) struct Transforms {
    /// From filters to `[elements, filters, channels]`.
    pub(super) filters: Transform,
    /// From images to `[elements, channels, tiles]` of a block.
    pub(super) read: Transform,
    /// From `[elements, filters, tiles]` of a block to pixels of results.
    pub(super) write: Transform,
}

impl Transforms {
    pub(super) fn new(isa: Isa) -> Self {
        let (filters, read) = (transform_filters(isa), read_tiles(isa));
        Self { filters, read, write: write_tiles(isa) }
    }
}

/// Adjacent tiles in one row of an image.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// Position of the first tile in the block.
    at: usize,
    image: usize,
    row: usize,
    column: usize,
    n: usize,
}

impl Shape {
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

    /// Copies the pixels of a row under the tiles of a stretch. Pixels outside the image are 0.
    ///
    /// # Safety
    /// The plane has the image's elements, and nothing writes to it.
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

/// Tiles that are sorted at once. Elements beyond the last tile of a stretch are overwritten by the
/// next stretch.
const LANES: usize = 16;
/// Pixels of a row of all tiles of a block. A stretch has one more pair than tiles.
type Row = [f32; 2 * (2 * BLOCK + LANES)];
/// One number for each tile of a block.
type Tiles = [f32; BLOCK];
/// The stretches of a block, and their number.
type Stretches = ([Stretch; BLOCK], usize);

for_each_isa! {
    transform_filters [] [] Transform,
    transform_filters_body (shape: &Shape, range: Range<usize>, from: *const f32, to: *mut f32)
}

for_each_isa! {
    read_tiles [] [] Transform, read_tiles_body (shape: &Shape, tiles: Range<usize>, from: *const f32, to: *mut f32)
}

for_each_isa! {
    write_tiles [] [] Transform, write_tiles_body (shape: &Shape, tiles: Range<usize>, from: *const f32, to: *mut f32)
}

/// Computes `G g` for a column of a filter.
#[inline(always)]
fn widened([a, b, c]: [f32; 3]) -> [f32; 4] {
    [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c]
}

/// Computes `U = G g G^T`.
///
/// # Safety
/// The convolution has these filters, and `to` holds all of them.
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
            let number = if shape.is_transposed {
                channel * n_filters + filter
            } else {
                filter * n_channels + channel
            };
            // SAFETY: required of the caller.
            let mut g = unsafe { from.wrapping_add(number * 9).cast::<[f32; 9]>().read() };
            if shape.is_transposed {
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

/// Computes `B^T d` for four rows or columns.
#[inline(always)]
fn differences([a, b, c, d]: [f32; 4]) -> [f32; 4] {
    [a - c, b + c, c - b, b - d]
}

/// Computes `V = B^T d B`.
///
/// # Safety
/// The images have these tiles, and `to` holds a block.
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
        // All rows first: loading a vector right after overlapping stores would stall.
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

/// Sorts the pixels of a row of this stretch by their column in the tile.
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

/// Computes [`differences`] for each tile.
#[inline(always)]
fn transform([a, b, c, d]: [&Tiles; 4], to: &mut [Tiles; 4]) {
    let [first, second, third, fourth] = to;
    for tile in 0..BLOCK {
        let values = differences([a[tile], b[tile], c[tile], d[tile]]);
        [first[tile], second[tile], third[tile], fourth[tile]] = values;
    }
}

/// Computes `A^T m` for four rows or columns.
#[inline(always)]
fn sums([a, b, c, d]: [f32; 4]) -> [f32; 2] {
    [a + b + c, b - c - d]
}

/// Computes `Y = A^T M A`.
///
/// # Safety
/// `from` has a block. The results have these tiles, and nothing else uses them.
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
