//! The convolutional networks of the SoyBean paper's experiments.

use soybean::{nn, prelude::*};

/// The sizes of a network of five convolutions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cnn5 {
    /// The channels of all convolutions.
    pub(crate) width: usize,
    pub(crate) n_classes: usize,
}

/// Five convolutions of 3 x 3 pixels of one width, then a dense layer.
#[soybean::layer]
pub(crate) fn cnn5(x: Tensor, sizes: Cnn5) -> Tensor {
    let Cnn5 { width, n_classes } = sizes;
    let mut h = x;
    for _ in 0..5 {
        h = nn::conv2d(h, width, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
    }
    nn::linear(h.global_avg_pool2d(), n_classes)
}
