//! Tile sizes of attention by fused multiply-add.

use soybean_plan::Attention;

use super::{Part, Tiling};

/// The threads along each side of a block.
const SIDE: usize = 16;

/// Returns the tiles of a part.
pub(super) fn tiling(it: &Attention, part: Part) -> Tiling {
    let (features, width) = (stride(it.features), stride(it.width));
    let most = it.features.max(it.width);
    // The largest tiles that leave room for two blocks on a multiprocessor for usual sizes, and for
    // one block in 160 KiB for all sizes.
    let (queries, keys) = match part {
        Part::Forward | Part::Statistics if most <= 64 => (64, 64),
        Part::Forward | Part::Statistics => (64, 32),
        _ if most <= 64 => (64, 64),
        Part::QueryGradients if most <= 128 => (64, 32),
        _ if most <= 128 => (32, 64),
        _ => (32, 32),
    };
    let weights = stride(keys);
    let n_words = match part {
        Part::Forward | Part::Statistics => {
            queries * features + keys * (features + width) + queries * weights
        }
        Part::QueryGradients => (queries + keys) * (features + width) + queries * weights,
        _ => (queries + keys) * (features + width) + 2 * queries * weights,
    };
    Tiling {
        texts: &[include_str!("fma.cu"), include_str!("fma_kernels.cu")],
        constants: vec![
            ("SIDE", SIDE),
            ("TILE_QUERIES", queries),
            ("TILE_KEYS", keys),
            ("FEATURE_STRIDE", features),
            ("WIDTH_STRIDE", width),
            ("WEIGHT_STRIDE", weights),
        ],
        rows: if part.is_by_keys() { keys } else { queries },
        threads: 256,
        min_blocks: 1,
        n_words,
    }
}

/// Returns the distance of rows of this length: an odd number of groups of 4, so that rows read at
/// the same time come from different banks.
const fn stride(length: usize) -> usize {
    4 * (length.div_ceil(4) | 1)
}
