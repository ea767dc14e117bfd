//! The pixels that the windows of a tile of results cover, in shared memory.
//!
//! A staged pixel keeps its channels together, as words for tensor cores: two numbers in bf16, or
//! one in tf32. A row of a window is then one run of words, which begins at a multiple of
//! `UNIT_WORDS` words. Pixels outside the image are zeros, and so are numbers that pad a pixel.

use soybean_plan::{Convolution, DType};

use crate::{
    text::{Text, c_type},
    units::Unit,
};

/// The maximum number of elements that a thread copies at once.
const MOST_CHUNK: usize = 16;
/// Windows may be read beyond their ends by fewer words.
const SLACK_WORDS: usize = 8;

/// The pixels of one image under a tile of results, and their layout in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageTile {
    /// The rows and columns of results.
    pub(super) results: [usize; 2],
    /// The numbers in a word.
    pub(super) per_word: usize,
    /// The words at whose multiples rows of windows begin: 2 if possible.
    pub(super) unit_words: usize,
    /// The numbers from one pixel to the next, at least the channels.
    pub(super) pixel: usize,
    /// The pixels that a thread copies at once.
    chunk: usize,
    /// The staged pixels before the first window, which make chunks start at whole chunks of a row.
    lead: usize,
    /// The staged rows.
    rows: usize,
    /// The chunks of a row.
    row_chunks: usize,
}

impl ImageTile {
    /// Returns the layout for a tile of results whose columns are a multiple of 8, of a convolution
    /// with channels last, one group, and as many channels as [`MOST_CHUNK`] at most. `per_word` is
    /// 2 in bf16, and 1 in tf32.
    pub(super) fn new(it: &Convolution, results: [usize; 2], per_word: usize) -> Self {
        // Pixels without padding have the shortest windows.
        Self::with_pixel(it, results, per_word, 2, it.channels).unwrap_or_else(|| {
            let words = it.channels.div_ceil(per_word).next_power_of_two();
            Self::with_pixel(it, results, per_word, words.min(2), words * per_word)
                .expect("padded pixels begin at multiples of units")
        })
    }

    /// Returns the layout with pixels of this many numbers, if windows begin at units.
    fn with_pixel(
        it: &Convolution,
        results: [usize; 2],
        per_word: usize,
        unit_words: usize,
        pixel: usize,
    ) -> Option<Self> {
        let unit = unit_words * per_word;
        let lead = |chunk: usize| it.padding[1].next_multiple_of(chunk) - it.padding[1];
        // Chunks are inside the image or outside.
        let chunk = [8, 4, 2, 1].into_iter().find(|chunk| {
            it.image[1].is_multiple_of(*chunk)
                && (*chunk == 1 || chunk * it.channels <= MOST_CHUNK)
                && (chunk * pixel).is_multiple_of(per_word)
                && (lead(*chunk) * pixel).is_multiple_of(unit)
        })?;
        let covered = |dim: usize| {
            (results[dim] - 1) * it.stride[dim] + (it.window[dim] - 1) * it.dilation[dim] + 1
        };
        let (lead, rows) = (lead(chunk), covered(0));
        let row_chunks = (lead + covered(1)).div_ceil(chunk);
        (it.stride[1] * pixel).is_multiple_of(unit).then_some(Self {
            results,
            per_word,
            unit_words,
            pixel,
            chunk,
            lead,
            rows,
            row_chunks,
        })
    }

    /// Returns the shared memory of the staged pixels, in words: a multiple of 4.
    pub(super) const fn n_words(&self) -> usize {
        self.rows * self.row_words() + SLACK_WORDS
    }

    /// Returns the number of staged pixels.
    pub(super) const fn n_pixels(&self) -> usize {
        self.rows * self.row_chunks * self.chunk
    }

    /// Returns the words from one staged row to the next.
    const fn row_words(&self) -> usize {
        (self.row_chunks * self.chunk_words()).next_multiple_of(4)
    }

    const fn chunk_words(&self) -> usize {
        self.chunk * self.pixel / self.per_word
    }

    /// Writes the constants, and the function `stage_image`, which relies on the constant
    /// `THREADS`: the threads of a block.
    pub(super) fn write(&self, text: &mut Text, it: &Convolution, image: DType) {
        let sizes = [
            ("CHANNELS", it.channels),
            ("IMAGE_HEIGHT", it.image[0]),
            ("IMAGE_WIDTH", it.image[1]),
            ("STRIDE_Y", it.stride[0]),
            ("STRIDE_X", it.stride[1]),
            ("PADDING_Y", it.padding[0]),
            ("PADDING_X", it.padding[1]),
            ("TILE_ROWS", self.results[0]),
            ("TILE_COLUMNS", self.results[1]),
            ("PER_WORD", self.per_word),
            ("UNIT_WORDS", self.unit_words),
            ("PIXEL", self.pixel),
            ("CHUNK", self.chunk),
            ("LEAD", self.lead),
            ("STAGED_ROWS", self.rows),
            ("ROW_CHUNKS", self.row_chunks),
            ("ROW_WORDS", self.row_words()),
        ];
        text.constants("int", sizes);
        text.line(format!("typedef {} Image;", c_type(image)));
        let loaded = Unit::of(image, &[self.chunk * it.channels]);
        text.line(format!("typedef {} ImageUnit;", loaded.c_type));
        let stored = Unit::of(DType::I32, &[self.chunk_words()]);
        text.line(format!("typedef {} WordUnit;", stored.c_type));
        text.line(include_str!("image_tile.cu"));
    }
}
