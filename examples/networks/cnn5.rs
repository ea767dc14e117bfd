//! The convolutional networks of the SoyBean paper's experiments.

use soybean::{nn, prelude::*};

/// Five convolutions of 3 x 3 pixels of one width, then a dense layer.
#[soybean::layer]
pub(crate) fn cnn5(x: Tensor, width: usize, n_classes: usize) -> Tensor {
    let mut h = x;
    for _ in 0..5 {
        h = nn::conv2d(h, width, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
    }
    nn::linear(h.global_avg_pool2d(), n_classes)
}
