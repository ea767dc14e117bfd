//! Tile sizes of attention by tensor cores.
//!
//! A block has four warps. Blocks need at most 99 KiB of shared memory, which all GPUs since
//! compute capability 8.0 have, and no more registers than there are
//! (`soybean-runtime/tests/kernel_text/machine_code.rs`).

use soybean_plan::Attention;

use super::{Part, Tiling};

/// The warps of a block.
const N_WARPS: usize = 4;
/// The words of a row that one matrix instruction takes.
const STEP_WORDS: usize = 8;

/// Returns true if the sums of the rows of a part fit into registers, and its tiles into shared
/// memory.
pub(super) fn fits(it: &Attention, part: Part, per_word: usize) -> bool {
    matches!(part, Part::Forward | Part::Statistics)
        || per_word == 2
        || it.features.max(it.width) <= 128
}

/// Returns true if the gradients of keys and values fit into the registers of one function.
pub(super) fn joins_gradients(it: &Attention, per_word: usize) -> bool {
    it.features.max(it.width) <= 128 || per_word == 1
}

/// The sizes of the tiles of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileSizes {
    /// The number of tiles of 16 rows of a warp.
    row_tiles: usize,
    /// The columns of a tile of scores.
    columns: usize,
}

/// Returns the sizes of tiles that a part may have, the usual ones first. Only long sequences of
/// `bf16` have others, which a measurement may prefer.
pub(super) fn tile_sizes(it: &Attention, part: Part, per_word: usize) -> Vec<TileSizes> {
    let sizes = |(row_tiles, columns)| TileSizes { row_tiles, columns };
    let mut all = vec![sizes(usual_sizes(it, part, per_word))];
    let is_long = it.queries.min(it.keys) > 16 * N_WARPS;
    let others: &[(usize, usize)] = match (part, it.features.max(it.width)) {
        _ if per_word == 1 || !is_long => &[],
        (Part::Forward, ..=128) => &[(1, 64), (2, 32)],
        (Part::KeyAndValueGradients, ..=64) => &[(1, 32)],
        (Part::KeyAndValueGradients, ..=128) => &[(1, 16)],
        (Part::QueryGradients, ..=64) => &[(1, 64)],
        (Part::QueryGradients, ..=128) => &[(1, 16)],
        _ => &[],
    };
    all.extend(others.iter().map(|it| sizes(*it)));
    all
}

/// Returns the number of tiles of 16 rows of a warp, and the columns of a tile of scores.
fn usual_sizes(it: &Attention, part: Part, per_word: usize) -> (usize, usize) {
    let most = it.features.max(it.width);
    // A row of a tile in shared memory.
    let n_words = most.div_ceil(per_word);
    match part {
        Part::Forward | Part::Statistics => {
            let row_tiles = if n_words <= 64 && it.queries > 16 * N_WARPS { 2 } else { 1 };
            let columns = match n_words {
                ..=64 => 64,
                65..=128 => 32,
                _ => 16,
            };
            (row_tiles, columns)
        }
        Part::QueryGradients if per_word == 2 => match most {
            ..=64 if it.queries > 16 * N_WARPS => (2, 32),
            ..=64 => (1, 64),
            _ => (1, 32),
        },
        Part::KeyAndValueGradients | Part::KeyGradients | Part::ValueGradients if per_word == 2 => {
            match most {
                ..=64 if it.keys > 16 * N_WARPS => (2, 32),
                ..=128 => (1, 32),
                _ => (1, 16),
            }
        }
        _ => (1, if most <= 64 { 64 } else { 16 }),
    }
}

/// Returns the tiles of a part, of these sizes, for words of `n` numbers.
pub(super) fn tiling(
    it: &Attention,
    part: Part,
    per_word: usize,
    TileSizes { row_tiles, columns }: TileSizes,
) -> Tiling {
    let rows = 16 * N_WARPS * row_tiles;
    let stride = |length: usize| odd_fours(length.div_ceil(per_word).next_multiple_of(STEP_WORDS));
    let (feature, width) = (stride(it.features), stride(it.width));
    // Only bf16 is copied while products are computed.
    let stages = if per_word == 2 && it.features.max(it.width) <= 128 { 2 } else { 1 };
    let n_words = match part {
        Part::Forward | Part::Statistics => rows * feature + columns * (feature + width),
        Part::QueryGradients => (rows + stages * columns) * (feature + width),
        _ => (rows + stages * columns) * (feature + width) + stages * 2 * columns,
    };
    Tiling {
        texts: &[
            include_str!("mma.cu"),
            include_str!("mma_kernels.cu"),
            include_str!("mma_gradients.cu"),
        ],
        constants: vec![
            ("PER_WORD", per_word),
            ("STAGES", stages),
            ("ROW_TILES", row_tiles),
            ("TILE_ROWS", rows),
            ("TILE_COLUMNS", columns),
            ("FEATURE_STRIDE", feature),
            ("WIDTH_STRIDE", width),
        ],
        rows,
        threads: 32 * 4,
        min_blocks: 2,
        n_words,
    }
}

/// The distance is an odd number of groups of 4 words: groups from eight rows that are read at the
/// same time come from different banks.
const fn odd_fours(n_words: usize) -> usize {
    4 * (n_words.div_ceil(4) | 1)
}
