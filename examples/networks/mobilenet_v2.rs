//! MobileNetV2. Source: Sandler et al. 2018, with the layers of `torchvision`.

use soybean::{
    nn::{self, InvertedResidual, Window},
    prelude::*,
};

/// The sizes of a MobileNetV2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MobileNetV2 {
    /// The channels of the first convolution, 32 in the paper; other layers follow in proportion.
    pub(crate) width: usize,
    pub(crate) n_classes: usize,
    /// The probability of dropout before the last layer.
    pub(crate) dropout: f64,
}

/// Images `[n, 3, h, w]`, of 224 x 224 pixels in the paper, to logits.
#[soybean::layer]
pub(crate) fn mobilenet_v2(x: Tensor, sizes: MobileNetV2) -> Tensor {
    let MobileNetV2 { width, n_classes, dropout } = sizes;
    let mut h = nn::conv_norm(x, width, Window { kernel: 3, stride: 2, padding: 1 }).relu6();
    // Expansion, channels at width 32, blocks, and the stride of the first block.
    for (expansion, channels, n_blocks, stride) in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ] {
        let out_channels = channels * width / 32;
        for block in 0..n_blocks {
            let stride = if block == 0 { stride } else { 1 };
            h = nn::inverted_residual(h, InvertedResidual { out_channels, stride, expansion });
        }
    }
    h = nn::conv_norm(h, 40 * width, Window { kernel: 1, stride: 1, padding: 0 }).relu6();
    nn::linear(h.global_avg_pool2d().dropout(dropout), n_classes)
}
