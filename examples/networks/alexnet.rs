//! AlexNet as in Krizhevsky 2014 ("One weird trick") and in `torchvision`.

use soybean::{nn, prelude::*};

/// The sizes of an AlexNet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlexNet {
    /// The channels of the first convolution, 64 in the paper.
    pub(crate) width: usize,
    /// The features of the first two dense layers, 4096 in the paper.
    pub(crate) hidden: usize,
    pub(crate) n_classes: usize,
}

/// Images `[n, 3, h, w]`, of 224 x 224 pixels in the paper, to logits.
#[soybean::layer]
pub(crate) fn alexnet(x: Tensor, sizes: AlexNet) -> Tensor {
    let AlexNet { width, hidden, n_classes } = sizes;
    let mut h = nn::conv2d(x, width, nn::Window { kernel: 11, stride: 4, padding: 2 })
        .relu()
        .max_pool2d(3, 2, 0);
    h = nn::conv2d(h, 3 * width, nn::Window { kernel: 5, stride: 1, padding: 2 })
        .relu()
        .max_pool2d(3, 2, 0);
    for channels in [6 * width, 4 * width, 4 * width] {
        h = nn::conv2d(h, channels, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
    }
    h = h.max_pool2d(3, 2, 0).flatten();
    for _ in 0..2 {
        h = nn::linear(h.dropout(0.5), hidden).relu();
    }
    nn::linear(h, n_classes)
}
