//! Gradients of the filters of a convolution on images with few channels, such as the first of a
//! network, by tensor cores. Rows of images are in shared memory as they are in memory.
//!
//! Blocks share the pixels, each in tiles, and their partial sums are added up in a fixed order.

use soybean_plan::{Convolution, ConvolutionForm, DType, KernelDescriptor};

use super::words_of_few_channels;
use crate::{
    Call, Generated,
    product::grid,
    text::{Function, Parameter, Text, Threads, c_type, input_apart, result_apart, workspace},
};

/// The maximum number of filters of a block.
const MOST_ROWS: usize = 64;
/// The maximum number of tiles of 16 x 8 sums of a warp, each with four registers.
const MOST_SUM_TILES: usize = 24;
/// The maximum number of warps of a block, and the number of those that should be at work.
const MOST_WARPS: usize = 8;
const ENOUGH_WARPS: usize = 4;
/// The depth of a step of products, in pixels.
const STEP: usize = 16;
/// The elements after the gradients of a pixel, which put neighbors into different banks.
const GRADIENT_PADDING: usize = 8;
/// The maximum number of pixels of a tile.
const MOST_PIXELS: usize = 256;
/// The bytes that are copied in the time that a block loses between two tiles.
const BYTES_OF_TILE: usize = 8 << 10;
/// The shared memory that all GPUs since compute capability 8.0 give a block.
const MOST_SHARED_BYTES: usize = 99 << 10;
/// The shared memory of each of three blocks of a multiprocessor since compute capability 9.0.
const SHARED_BYTES_OF_THREE: usize = 74 << 10;
/// The numbers of blocks, of which more share the pixels more evenly. The last is enough.
const BLOCKS: [usize; 3] = [1584, 792, 264];
/// The bytes of partial sums that take little time.
const FEW_PARTIAL_BYTES: usize = 20 << 20;
/// The threads of a block that adds up partial sums, and the results that they share.
const FINISHING: (u32, usize) = (1024, 32);

/// Returns true if there are such functions for the convolution.
pub(super) fn suits(it: &Convolution, call: &Call<'_>) -> bool {
    Tiling::new(it, call).is_some()
}

/// Returns the functions, or none for convolutions that they do not suit.
pub(super) fn generate(it: &Convolution, call: &Call<'_>, prefix: &str) -> Option<Generated> {
    let tiling = Tiling::new(it, call)?;
    let mut text = Text::default();
    let space = format!("{prefix}text");
    text.block(format!("namespace {space}"), |text| tiling.space(text, it, call));
    let partial = |constness: &str| workspace(format!("{constness}float* __restrict__ partial"), 0);
    let mut function = |name: &str, parameters: Vec<Parameter>, block: u32, arguments: &str| {
        let threads = Threads::Cooperating;
        let function = Function { name: format!("{prefix}{name}"), parameters, threads, block };
        text.function(&function, |text| text.line(format!("{space}::{name}({arguments});")));
        function
    };
    let inputs = [0, 1].map(|number| input_apart(number, call.inputs[number]));
    let parameters = inputs.into_iter().chain([partial("")]).collect();
    let block = u32::try_from(tiling.threads()).ok()?;
    let product = function("product", parameters, block, "in0, in1, partial");
    let parameters = vec![partial("const "), result_apart(0, call.results[0])];
    let finish = function("finish", parameters, FINISHING.0, "partial, out0");
    let n_results = it.filters * tiling.window_row * it.window[0];
    let shared_bytes = u32::try_from(tiling.shared_bytes()).ok()?;
    let operations = vec![
        product.launch_with(grid(tiling.splits * tiling.n_parts())?, shared_bytes),
        finish.launch(grid(n_results.div_ceil(FINISHING.1))?),
    ];
    let workspace_bytes = tiling.splits * tiling.partial_bytes();
    Some(Generated { text: text.finish(), operations, workspace_bytes })
}

/// The distribution of filters and window elements over blocks and warps, and of pixels over tiles.
#[derive(Clone, Copy, Debug)]
struct Tiling {
    dtype: DType,
    /// The numbers of a word.
    per_word: usize,
    /// The filters are in this many parts, each with some tiles of 16.
    filter_parts: usize,
    row_tiles: usize,
    /// The elements of a row of the window, and the columns that stand for them: at first some for
    /// no element.
    window_row: usize,
    lead: usize,
    pitch: usize,
    /// The columns are in this many parts, and their warps each have some units of tiles of 8.
    window_parts: usize,
    warps_across: usize,
    units: usize,
    unit_tiles: usize,
    /// The warps that share the pixels of a tile.
    warps_along: usize,
    rows: StagedRows,
    pixels: PixelTile,
    /// The number of blocks that share the tiles.
    splits: usize,
}

/// The beginning of rows of images in shared memory.
#[derive(Clone, Copy, Debug)]
struct StagedRows {
    /// The elements that are copied at once: all inside of a row of the image, or all outside.
    copied: usize,
    /// The elements before the first of the image, of which some are zeros that windows read.
    left: usize,
}

/// A tile of pixels of a result, and the part of the image under it.
#[derive(Clone, Copy, Debug)]
struct PixelTile {
    height: usize,
    width: usize,
    /// The number of tiles of all results.
    n: usize,
    /// The rows of the image and the elements of each.
    staged_rows: usize,
    staged_row: usize,
    /// The shared memory of gradients and rows.
    bytes: usize,
}

impl Tiling {
    fn new(it: &Convolution, call: &Call<'_>) -> Option<Self> {
        let per_word = words_of(it, call)?;
        let dtype = call.inputs[0];
        let filter_parts = it.filters.div_ceil(MOST_ROWS);
        let row_tiles = it.filters.div_ceil(filter_parts).div_ceil(16);
        // A word has two neighbors of an image if all pixels have the same place in their words.
        let is_paired = per_word == 2 && (it.stride[1] * it.channels).is_multiple_of(2);
        let unit_tiles = if is_paired { 2 } else { 1 };
        let rows = StagedRows::new(it, dtype);
        let window_row = it.window[1] * it.channels;
        let lead = rows.start(it) % unit_tiles;
        let pitch = (lead + window_row).next_multiple_of(unit_tiles);
        let units = (it.window[0] * pitch).div_ceil(8 * unit_tiles);
        let warps = units.div_ceil(MOST_SUM_TILES / (row_tiles * unit_tiles));
        let window_parts = warps.div_ceil(MOST_WARPS);
        let warps_across = warps.div_ceil(window_parts);
        let units = units.div_ceil(window_parts * warps_across);
        let window_rows = window_rows(it, pitch, 8 * unit_tiles * units * warps_across);
        // Blocks of few warps share a multiprocessor.
        let few_bytes = match warps_across <= ENOUGH_WARPS {
            true => SHARED_BYTES_OF_THREE,
            false => MOST_SHARED_BYTES,
        };
        let tile = |most| PixelTile::new(it, dtype, &rows, (16 * row_tiles, window_rows), most);
        let mut this = Self {
            dtype,
            per_word,
            filter_parts,
            row_tiles,
            window_row,
            lead,
            pitch,
            window_parts,
            warps_across,
            units,
            unit_tiles,
            warps_along: (ENOUGH_WARPS / warps_across).max(1),
            rows,
            pixels: tile(few_bytes).or_else(|| tile(MOST_SHARED_BYTES))?,
            splits: 0,
        };
        let splits = BLOCKS.map(|it| it.div_ceil(this.n_parts()).min(this.pixels.n));
        let is_small = |splits: &usize| splits * this.partial_bytes() <= FEW_PARTIAL_BYTES;
        this.splits = splits.into_iter().find(is_small).unwrap_or(splits[2]);
        (this.shared_bytes() <= MOST_SHARED_BYTES).then_some(this)
    }

    const fn n_parts(&self) -> usize {
        self.filter_parts * self.window_parts
    }

    const fn threads(&self) -> usize {
        32 * self.warps_across * self.warps_along
    }

    /// Returns the bytes of the sums of a block.
    const fn sum_bytes(&self) -> usize {
        let columns = 8 * self.unit_tiles * self.units * self.warps_across;
        4 * 16 * self.row_tiles * columns
    }

    /// Returns the bytes of the partial sums of all parts.
    const fn partial_bytes(&self) -> usize {
        self.n_parts() * self.sum_bytes()
    }

    /// Returns the shared memory of a block: tiles, and later sums.
    fn shared_bytes(&self) -> usize {
        self.pixels.shared_bytes().max(if self.warps_along > 1 { self.sum_bytes() } else { 0 })
    }

    /// Writes the constants, and the functions that rely on them.
    fn space(&self, text: &mut Text, it: &Convolution, call: &Call<'_>) {
        let pixels = it.image[0] * it.image[1] * it.channels;
        let results = it.result[0] * it.result[1] * it.filters;
        let partial = self.splits * self.partial_bytes() / 4;
        let most = (it.batch * pixels.max(results)).max(partial).max(self.pixels.n) + 2048;
        text.index_type(most);
        text.constants("Index", [("TILES", self.pixels.n), ("SPLITS", self.splits)]);
        let sizes = [
            ("CHANNELS", it.channels),
            ("FILTERS", it.filters),
            ("IMAGE_HEIGHT", it.image[0]),
            ("IMAGE_WIDTH", it.image[1]),
            ("WINDOW_HEIGHT", it.window[0]),
            ("WINDOW_WIDTH", it.window[1]),
            ("RESULT_HEIGHT", it.result[0]),
            ("RESULT_WIDTH", it.result[1]),
            ("STRIDE_Y", it.stride[0]),
            ("STRIDE_X", it.stride[1]),
            ("PADDING_Y", it.padding[0]),
            ("DILATION_Y", it.dilation[0]),
        ];
        let tiling = [
            ("PER_WORD", self.per_word),
            ("FILTER_PARTS", self.filter_parts),
            ("ROW_TILES", self.row_tiles),
            ("WINDOW_PARTS", self.window_parts),
            ("WARPS_ACROSS", self.warps_across),
            ("WARPS_ALONG", self.warps_along),
            ("UNITS", self.units),
            ("UNIT_TILES", self.unit_tiles),
            ("PITCH", self.pitch),
            ("WINDOW_LEAD", self.lead),
            ("WINDOW_START", self.rows.start(it) - self.lead),
            ("TILE_HEIGHT", self.pixels.height),
            ("TILE_WIDTH", self.pixels.width),
            ("COPIED", self.rows.copied),
            ("STAGED_LEFT", self.rows.left),
            ("STAGED_ROWS", self.pixels.staged_rows),
            ("STAGED_ROW", self.pixels.staged_row),
        ];
        text.constants("int", sizes.into_iter().chain(tiling));
        text.line(format!("typedef {} Element;", c_type(self.dtype)));
        text.line(format!("typedef {} Result;", c_type(call.results[0])));
        text.line(include_str!("few_channels_filter.cu"));
    }
}

/// Returns the numbers of a word of tensor cores, if the convolution suits them here.
fn words_of(it: &Convolution, call: &Call<'_>) -> Option<usize> {
    let per_word = words_of_few_channels(it, call)?;
    let dtype = if per_word == 2 { DType::Bf16 } else { DType::F32 };
    let is_suited = it.form == ConvolutionForm::Filter
        && call.inputs.iter().all(|it| *it == dtype)
        && it.n_operations() > 0;
    is_suited.then_some(per_word)
}

/// Returns the largest number of rows of the window to which this many columns of a part belong.
fn window_rows(it: &Convolution, pitch: usize, columns: usize) -> usize {
    let n = it.window[0] * pitch;
    let rows = |first: usize| (n.min(first + columns) - 1) / pitch - first / pitch + 1;
    (0..n).step_by(columns).map(rows).max().unwrap_or(1)
}

impl StagedRows {
    fn new(it: &Convolution, dtype: DType) -> Self {
        let row = it.image[1] * it.channels;
        let all = [16, 4].map(|it| it / dtype.bytes());
        let copied = all.into_iter().find(|it| row.is_multiple_of(*it)).unwrap_or(1);
        Self { copied, left: (it.padding[1] * it.channels).next_multiple_of(copied) }
    }

    /// Returns the place in a staged row of the first window.
    const fn start(self, it: &Convolution) -> usize {
        self.left - it.padding[1] * it.channels
    }
}

impl PixelTile {
    /// Returns the tile that takes the least time to copy, for parts with this many filters and
    /// rows of the window, in at most so much shared memory.
    fn new(
        it: &Convolution,
        dtype: DType,
        rows: &StagedRows,
        part: (usize, usize),
        most_bytes: usize,
    ) -> Option<Self> {
        let [height, width] = it.result;
        let whole = (1..=height).map(|it| [it, width]);
        // Parts of rows begin at a multiple of 16 bytes of an image.
        let parts = (2..=width).map(|it| [1, width.div_ceil(it).next_multiple_of(8)]);
        let fits =
            |tile: &Self| tile.n_padded() <= MOST_PIXELS && tile.shared_bytes() <= most_bytes;
        let tiles = whole.chain(parts).map(|size| Self::of_size(it, dtype, rows, part, size));
        tiles.filter(fits).min_by_key(|it| it.n * (it.bytes + BYTES_OF_TILE))
    }

    fn of_size(
        it: &Convolution,
        dtype: DType,
        rows: &StagedRows,
        (filters, window_rows): (usize, usize),
        [height, width]: [usize; 2],
    ) -> Self {
        let n = it.batch * it.result[0].div_ceil(height) * it.result[1].div_ceil(width);
        let staged_rows = (height - 1) * it.stride[0] + (window_rows - 1) * it.dilation[0] + 1;
        // The columns of a window may end with one that stands for no element.
        let windows = ((width - 1) * it.stride[1] + it.window[1]) * it.channels + 1;
        let staged_row = (rows.start(it) + windows).next_multiple_of(16 / dtype.bytes());
        let gradients = (height * width).next_multiple_of(STEP) * (filters + GRADIENT_PADDING);
        let bytes = dtype.bytes() * (gradients + staged_rows * staged_row);
        Self { height, width, n, staged_rows, staged_row, bytes }
    }

    /// Returns the shared memory of two tiles and the offsets of pixels.
    const fn shared_bytes(&self) -> usize {
        4 * self.n_padded() + 2 * self.bytes
    }

    /// Returns the number of pixels of whole steps.
    const fn n_padded(&self) -> usize {
        (self.height * self.width).next_multiple_of(STEP)
    }
}
