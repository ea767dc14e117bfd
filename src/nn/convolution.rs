//! Convolutions.

use super::norm::batch_norm;
use crate::prelude::*;

/// The windows of a convolution with square filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The rows and columns of a filter, and the planes of a cubic one.
    pub kernel: usize,
    /// The distance between neighboring results, in pixels.
    pub stride: usize,
    /// The rows and columns of zeros on each side of an image, or a volume's planes, too.
    pub padding: usize,
}

/// Convolves `x [n, c, h, w]` with square filters: `weight [out_channels, c, kernel,
/// kernel]` and `bias [out_channels]`, both uniform within `1 / sqrt(c * kernel^2)` of 0.
#[crate::layer]
pub fn conv2d(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let bound = 1.0 / ((x.dim(1) * kernel * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel, kernel], uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, 1) + bias.reshape([out_channels, 1, 1])
}

/// Applies [`conv2d`] without `bias`, for outputs that are normalized next.
#[crate::layer]
pub fn conv2d_without_bias(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let bound = 1.0 / ((x.dim(1) * kernel * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel, kernel], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, 1)
}

/// Convolves each channel of `x [n, c, h, w]` with a square filter of its own: `weight [c, 1,
/// kernel, kernel]` and `bias [c]`, both uniform within `1 / kernel` of 0. Source: Howard et al.
/// 2017.
#[crate::layer]
pub fn depthwise_conv2d(x: Tensor, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let (channels, bound) = (x.dim(1), 1.0 / (kernel as f64));
    let weight = param("weight", [channels, 1, kernel, kernel], uniform(-bound, bound));
    let bias = param("bias", [channels], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, channels) + bias.reshape([channels, 1, 1])
}

/// Applies [`depthwise_conv2d`] without `bias`, for outputs that are normalized next.
#[crate::layer]
pub fn depthwise_conv2d_without_bias(x: Tensor, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let (channels, bound) = (x.dim(1), 1.0 / (kernel as f64));
    let weight = param("weight", [channels, 1, kernel, kernel], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, channels)
}

/// Applies a transposed convolution to `x [n, c, h, w]`, which makes images larger: `weight [c,
/// out_channels, kernel, kernel]` and `bias [out_channels]`, both uniform within
/// `1 / sqrt(out_channels * kernel^2)` of 0, as in PyTorch.
#[crate::layer]
pub fn conv_transpose2d(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let bound = 1.0 / ((out_channels * kernel * kernel) as f64).sqrt();
    let weight = param("weight", [x.dim(1), out_channels, kernel, kernel], uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv_transpose2d(weight, stride, padding, 0, 1, 1) + bias.reshape([out_channels, 1, 1])
}

/// Convolves `x [n, c, length]`: `weight [out_channels, c, kernel]` and `bias
/// [out_channels]`, both uniform within `1 / sqrt(c * kernel)` of 0.
#[crate::layer]
pub fn conv1d(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let bound = 1.0 / ((x.dim(1) * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel], uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv1d(weight, stride, padding, 1, 1) + bias.reshape([out_channels, 1])
}

/// Convolves volumes `x [n, c, d, h, w]` with cubic filters: `weight [out_channels, c, kernel,
/// kernel, kernel]` and `bias [out_channels]`, both uniform within `1 / sqrt(c * kernel^3)` of 0.
#[crate::layer]
pub fn conv3d(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    let Window { kernel, stride, padding } = window;
    let bound = 1.0 / ((x.dim(1) * kernel * kernel * kernel) as f64).sqrt();
    let shape = [out_channels, x.dim(1), kernel, kernel, kernel];
    let weight = param("weight", shape, uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv3d(weight, stride, padding, 1, 1) + bias.reshape([out_channels, 1, 1, 1])
}

/// Applies [`conv2d_without_bias`], then [`batch_norm`].
#[crate::layer]
pub fn conv_norm(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    batch_norm(conv2d_without_bias(x, out_channels, window))
}

/// Applies [`conv_norm`], then a ReLU.
#[crate::layer]
pub fn conv_norm_relu(x: Tensor, out_channels: usize, window: Window) -> Tensor {
    conv_norm(x, out_channels, window).relu()
}
