//! Residual networks. Source: He et al. 2016.

use soybean::{nn, prelude::*};

/// The sizes of a residual network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResNet {
    /// The channels of the first convolution: 64 in the paper's ResNet-50, 16 in its ResNet-20.
    pub(crate) width: usize,
    pub(crate) n_classes: usize,
}

/// ResNet-50: images `[n, 3, h, w]`, of 224 x 224 pixels in the paper, to logits.
#[soybean::layer]
pub(crate) fn resnet50(x: Tensor, sizes: ResNet) -> Tensor {
    let ResNet { width, n_classes } = sizes;
    let mut h = nn::conv_norm_relu(x, width, nn::Window { kernel: 7, stride: 2, padding: 3 })
        .max_pool2d(3, 2, 1);
    for (width, n_blocks, stride) in
        [(width, 3, 1), (2 * width, 4, 2), (4 * width, 6, 2), (8 * width, 3, 2)]
    {
        for block in 0..n_blocks {
            h = nn::bottleneck(
                h,
                nn::Bottleneck { width, stride: if block == 0 { stride } else { 1 } },
            );
        }
    }
    nn::linear(h.global_avg_pool2d(), n_classes)
}

/// ResNet-20, for small images: `[n, c, 32, 32]` to logits.
#[soybean::layer]
pub(crate) fn resnet20(x: Tensor, sizes: ResNet) -> Tensor {
    let ResNet { width, n_classes } = sizes;
    let mut h = nn::conv_norm_relu(x, width, nn::Window { kernel: 3, stride: 1, padding: 1 });
    for (width, stride) in [(width, 1), (2 * width, 2), (4 * width, 2)] {
        for block in 0..3 {
            h = nn::basic_block(
                h,
                nn::BasicBlock { out_channels: width, stride: if block == 0 { stride } else { 1 } },
            );
        }
    }
    nn::linear(h.global_avg_pool2d(), n_classes)
}
