//! VGG-16. Source: Simonyan & Zisserman 2015.

use soybean::{nn, prelude::*};

/// The sizes of a VGG-16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vgg16 {
    /// The channels of the first convolutions, 64 in the paper.
    pub(crate) width: usize,
    /// The features of the first two dense layers, 4096 in the paper.
    pub(crate) hidden: usize,
    pub(crate) n_classes: usize,
}

/// Images `[n, 3, h, w]`, of 224 x 224 pixels in the paper, to logits.
#[soybean::layer]
pub(crate) fn vgg16(x: Tensor, sizes: Vgg16) -> Tensor {
    let Vgg16 { width, hidden, n_classes } = sizes;
    let mut h = x;
    for (channels, n_layers) in
        [(width, 2), (2 * width, 2), (4 * width, 3), (8 * width, 3), (8 * width, 3)]
    {
        for _ in 0..n_layers {
            h = nn::conv2d(h, channels, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
        }
        h = h.max_pool2d(2, 2, 0);
    }
    h = h.flatten();
    for _ in 0..2 {
        h = nn::linear(h, hidden).relu().dropout(0.5);
    }
    nn::linear(h, n_classes)
}
