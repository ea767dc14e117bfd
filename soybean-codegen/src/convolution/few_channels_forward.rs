//! Forward convolutions of images with few channels, as the first of a network: their windows are
//! read in place from a tile of the image in shared memory.

use soybean_plan::{Convolution, ConvolutionForm, DType};

use super::{image_tile::ImageTile, words_of_few_channels};
use crate::{
    Call, Generated,
    product::{ColumnBias, grid},
    text::{Function, Text, Threads, c_type, input_apart, result_apart},
};

/// The filters that a block may have.
const FILTERS: [usize; 2] = [64, 32];
/// The maximum number of warps of a block.
const MOST_WARPS: usize = 8;
/// The results of a warp for each filter.
const WARP_RESULTS: usize = 32;
/// The words of a window that one matrix instruction takes.
const STEP_WORDS: usize = 8;
/// The shared memory of a block, at most, so that a multiprocessor has room for two.
const MOST_SHARED_BYTES: usize = 96 << 10;
/// Blocks compute several tiles with the filters that they stage once. This many keep large GPUs
/// busy.
const MOST_BLOCKS: usize = 528;
/// The share of results in the tiles, at least.
const LEAST_USE: usize = 4;

/// The tiles of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiling {
    image: ImageTile,
    /// The columns of the results of a warp.
    warp_columns: usize,
    warps: usize,
    /// The filters of a block.
    filters: usize,
    /// The matrix instructions along a window.
    steps: usize,
}

/// Returns the function; none for other convolutions, and for those whose windows or filters need
/// more shared memory than there is.
pub(super) fn generate(
    it: &Convolution,
    call: &Call<'_>,
    bias: Option<ColumnBias>,
    prefix: &str,
) -> Option<Generated> {
    let per_word = words_of_few_channels(it, call)?;
    let is_small = |plane: [usize; 2], n: usize| i32::try_from(plane[0] * plane[1] * n).is_ok();
    let fits = it.form == ConvolutionForm::Forward
        && is_small(it.image, it.channels)
        && is_small(it.result, it.filters);
    let tiling = fits.then(|| Tiling::new(it, per_word)).flatten()?;
    let mut parameters = vec![
        input_apart(0, call.inputs[0]),
        input_apart(1, call.inputs[1]),
        result_apart(0, call.results[0]),
    ];
    parameters.extend(bias.map(|it| input_apart(it.input, it.dtype)));
    let function = Function {
        name: format!("{prefix}convolve"),
        parameters,
        threads: Threads::Cooperating,
        block: u32::try_from(32 * tiling.warps).ok()?,
    };
    let mut text = Text::default();
    let space = format!("{prefix}text");
    text.block(format!("namespace {space}"), |text| tiling.space(text, it, call, bias));
    text.function_within(&function, &format!("{}, 2", function.block), |text| {
        let bias = bias.map_or("nullptr".to_owned(), |it| format!("in{}", it.input));
        text.line(format!("{space}::convolve(in0, in1, out0, {bias});"));
    });
    let of_filters = it.filters.div_ceil(tiling.filters);
    let of_tiles = tiling.n_tiles(it).min(MOST_BLOCKS.div_ceil(of_filters));
    let shared_bytes = u32::try_from(tiling.shared_bytes()).ok()?;
    let operations = vec![function.launch_with(grid(of_tiles * of_filters)?, shared_bytes)];
    Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
}

impl Tiling {
    /// Returns the tiles with the least work.
    fn new(it: &Convolution, per_word: usize) -> Option<Self> {
        let shapes = (1..=MOST_WARPS)
            .flat_map(|down| (1..=MOST_WARPS / down).map(move |across| [down, across]))
            .flat_map(|warps| [8, 16, 32].map(|columns| (warps, columns)));
        let covered = |tiling: &Self| tiling.n_tiles(it) * tiling.warps * WARP_RESULTS;
        shapes
            .flat_map(|(warps, columns)| FILTERS.map(|n| Self::of(it, per_word, warps, columns, n)))
            .filter(|tiling| {
                tiling.shared_bytes() <= MOST_SHARED_BYTES
                    && covered(tiling) <= LEAST_USE * it.batch * it.result[0] * it.result[1]
            })
            .min_by_key(|tiling| tiling.work(it))
    }

    fn of(
        it: &Convolution,
        per_word: usize,
        [down, across]: [usize; 2],
        warp_columns: usize,
        filters: usize,
    ) -> Self {
        let results = [down * WARP_RESULTS / warp_columns, across * warp_columns];
        let image = ImageTile::new(it, results, per_word);
        let row_words = (it.window[1] * image.pixel).div_ceil(per_word);
        let n_words = it.window[0] * row_words.next_multiple_of(image.unit_words);
        let steps = n_words.div_ceil(STEP_WORDS);
        Self { image, warp_columns, warps: down * across, filters, steps }
    }

    fn shared_bytes(&self) -> usize {
        4 * (self.image.n_words() + self.filters * (self.steps * STEP_WORDS + 4))
    }

    fn n_tiles(&self, it: &Convolution) -> usize {
        let along = |dim: usize| it.result[dim].div_ceil(self.image.results[dim]);
        it.batch * along(0) * along(1)
    }

    /// Returns the estimated cycles of a multiprocessor, most of which access shared memory.
    fn work(&self, it: &Convolution) -> usize {
        let (operands, sums) = (self.steps * (8 + self.filters / 4), self.filters);
        let tile = self.warps * (operands + sums) + self.image.n_pixels() / 2 + 300;
        self.n_tiles(it) * tile * it.filters.div_ceil(self.filters)
    }

    /// Writes the constants, and the functions that rely on them.
    fn space(&self, text: &mut Text, it: &Convolution, call: &Call<'_>, bias: Option<ColumnBias>) {
        let n_elements = [(it.image, it.channels), (it.result, it.filters)]
            .map(|([height, width], n)| it.batch * height * width * n);
        // Blocks count tiles beyond the last.
        let most = n_elements[0].max(n_elements[1]) + MOST_BLOCKS;
        text.index_type(most);
        let sizes = [
            ("BATCH", it.batch),
            ("FILTERS", it.filters),
            ("WINDOW_ROWS", it.window[0]),
            ("WINDOW_COLUMNS", it.window[1]),
            ("RESULT_HEIGHT", it.result[0]),
            ("RESULT_WIDTH", it.result[1]),
            ("DILATION_Y", it.dilation[0]),
            ("THREADS", 32 * self.warps),
            ("WARP_COLUMNS", self.warp_columns),
            ("BLOCK_FILTERS", self.filters),
            ("NEIGHBORS", (self.filters / 8).min(16 / call.results[0].bytes())),
            ("STEPS", self.steps),
            ("IMAGE_WORDS", self.image.n_words()),
        ];
        text.constants("int", sizes);
        let has_relu = bias.is_some_and(|it| it.has_relu);
        text.constants("bool", [("HAS_BIAS", bias.is_some()), ("HAS_RELU", has_relu)]);
        let bias = bias.map_or(DType::F32, |it| it.dtype);
        let types = [("Filter", call.inputs[1]), ("Bias", bias), ("Result", call.results[0])];
        for (name, dtype) in types {
            text.line(format!("typedef {} {name};", c_type(dtype)));
        }
        self.image.write(text, it, call.inputs[0]);
        text.line(include_str!("few_channels_forward.cu"));
    }
}
