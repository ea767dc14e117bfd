//! Blocks of MobileNetV2. Source: Sandler et al. 2018.

use super::{
    convolution::{Window, conv_norm, depthwise_conv2d_without_bias},
    norm::batch_norm,
};
use crate::prelude::*;

/// The options of [`inverted_residual`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvertedResidual {
    /// The channels of the result.
    pub out_channels: usize,
    /// The stride of the depthwise convolution.
    pub stride: usize,
    /// The channels between the convolutions for each channel of `x`.
    pub expansion: usize,
}

/// Convolves `x [n, c, h, w]` pixel by pixel to `expansion * c` channels, each of these with 3 x 3
/// pixels of its own, and pixel by pixel to `[n, out_channels, h / stride, w / stride]`.
///
/// Each convolution has a [`batch_norm`], and all but the last a ReLU6. The first is left out if
/// `expansion` is 1. If the shape stays, `x` is added.
#[crate::layer]
pub fn inverted_residual(x: Tensor, options: InvertedResidual) -> Tensor {
    let InvertedResidual { out_channels, stride, expansion } = options;
    let point = Window { kernel: 1, stride: 1, padding: 0 };
    let mut h = x;
    if expansion > 1 {
        h = conv_norm(h, expansion * x.dim(1), point).relu6();
    }
    h = depthwise_conv2d_without_bias(h, Window { kernel: 3, stride, padding: 1 });
    h = conv_norm(batch_norm(h).relu6(), out_channels, point);
    if stride == 1 && x.dim(1) == out_channels { x + h } else { h }
}
