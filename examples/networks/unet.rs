//! U-Net for the classes of pixels. Source: Ronneberger et al. 2015.

use soybean::{nn, prelude::*};

/// The most levels below the first: the paper has 4.
#[soybean::constant]
const MAX_LEVELS: usize = 8;

/// The sizes of a U-Net.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UNet {
    /// The channels of the first level, 64 in the paper.
    pub(crate) width: usize,
    /// The levels below the first, each with half the rows and columns and twice the channels.
    pub(crate) n_levels: usize,
    pub(crate) n_classes: usize,
}

/// Images `[n, c, h, w]` to logits for each pixel, `[n, n_classes, h, w]`. `2^n_levels` divides
/// height and width.
#[soybean::layer]
#[expect(clippy::needless_range_loop, reason = "a model has no iterators of references")]
pub(crate) fn unet(x: Tensor, sizes: UNet) -> Tensor {
    let UNet { width, n_levels, n_classes } = sizes;
    let mut h = nn::double_conv(x, width);
    let mut skips = [h; MAX_LEVELS];
    for level in 0..n_levels {
        skips[level] = h;
        h = nn::unet_down(h);
    }
    for level in (0..n_levels).rev() {
        h = nn::unet_up(h, skips[level]);
    }
    nn::conv2d(h, n_classes, nn::Window { kernel: 1, stride: 1, padding: 0 })
}
