//! Tile sizes of attention by tensor cores.

use soybean_plan::Attention;

use super::{Part, Tiling};

/// The warps of a block.
const N_WARPS: usize = 4;
/// The words of a row that one matrix instruction takes.
const STEP_WORDS: usize = 8;

/// Returns true if the sums of the rows of a part fit into registers, and its tiles into 160 KiB.
pub(super) fn fits(it: &Attention, part: Part) -> bool {
    match part {
        Part::Forward | Part::Statistics => true,
        Part::KeyGradients | Part::QueryGradients => it.features.max(it.width) <= 128,
    }
}

/// Returns the tiles of a part, for words of `n` numbers.
pub(super) fn tiling(it: &Attention, part: Part, per_word: usize) -> Tiling {
    let is_forward = matches!(part, Part::Forward | Part::Statistics);
    let most = it.features.max(it.width);
    let row_tiles = if is_forward && most <= 64 && it.queries > 16 * N_WARPS { 2 } else { 1 };
    let columns = match part {
        Part::Forward | Part::Statistics if most <= 128 || per_word == 2 => 64,
        Part::KeyGradients | Part::QueryGradients if most <= 64 => 64,
        _ => 32,
    };
    let rows = 16 * N_WARPS * row_tiles;
    let words = |length: usize| length.div_ceil(per_word).next_multiple_of(STEP_WORDS);
    // In tf32 a tile that is read by column has another row distance than one that is only read by
    // row.
    let (feature_columns, width_columns) = match part {
        Part::Forward | Part::Statistics => (false, true),
        Part::KeyGradients => (true, true),
        Part::QueryGradients => (true, false),
    };
    let stride = |length: usize, has_columns: bool| {
        if has_columns && per_word == 1 { words(length) + 4 } else { odd_eights(words(length)) }
    };
    let (feature, width) = (stride(it.features, feature_columns), stride(it.width, width_columns));
    let by_column = |length: usize| match per_word {
        1 => 0,
        _ => odd_eights(length.next_multiple_of(STEP_WORDS * per_word)),
    };
    let (feature_column, width_column) = (by_column(it.features), by_column(it.width));
    let n_words = match part {
        Part::Forward | Part::Statistics if per_word == 1 => {
            (rows + columns) * feature + columns * width
        }
        Part::Forward | Part::Statistics => (rows + columns) * feature + columns / 2 * width_column,
        Part::KeyGradients => {
            let by_column = columns / 2 * (feature_column + width_column);
            (rows + columns) * (feature + width) + by_column + 2 * columns
        }
        Part::QueryGradients => (rows + columns) * (feature + width) + columns / 2 * feature_column,
    };
    Tiling {
        texts: [include_str!("mma.cu"), include_str!("mma_kernels.cu")],
        constants: vec![
            ("PER_WORD", per_word),
            ("MOST_EARLY", 2),
            ("ROW_TILES", row_tiles),
            ("TILE_ROWS", rows),
            ("TILE_COLUMNS", columns),
            ("FEATURE_STRIDE", feature),
            ("WIDTH_STRIDE", width),
            ("FEATURE_COLUMN_STRIDE", feature_column),
            ("WIDTH_COLUMN_STRIDE", width_column),
        ],
        rows,
        threads: 32 * 4,
        n_words,
    }
}

/// The distance is an odd number of groups of 8 words: pairs of words from four rows that are read
/// at the same time come from different banks.
const fn odd_eights(n_words: usize) -> usize {
    8 * (n_words.div_ceil(8) | 1)
}
