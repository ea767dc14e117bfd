//! Convolutions.

use super::norm::batch_norm;
use crate::prelude::*;

/// Convolves `x [n, c, h, w]` with square filters: `weight [out_channels, c, kernel,
/// kernel]` and `bias [out_channels]`, both uniform within `1 / sqrt(c * kernel^2)` of 0.
#[crate::layer]
pub fn conv2d(
    x: Tensor,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor {
    let bound = 1.0 / ((x.dim(1) * kernel * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel, kernel], uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, 1) + bias.reshape([out_channels, 1, 1])
}

/// Applies [`conv2d`] without `bias`, for outputs that are normalized next.
#[crate::layer]
pub fn conv2d_without_bias(
    x: Tensor,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor {
    let bound = 1.0 / ((x.dim(1) * kernel * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel, kernel], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, 1)
}

/// Convolves each channel of `x [n, c, h, w]` with a square filter of its own: `weight [c, 1,
/// kernel, kernel]` and `bias [c]`, both uniform within `1 / kernel` of 0. Source: Howard et al.
/// 2017.
#[crate::layer]
pub fn depthwise_conv2d(x: Tensor, kernel: usize, stride: usize, padding: usize) -> Tensor {
    let (channels, bound) = (x.dim(1), 1.0 / (kernel as f64));
    let weight = param("weight", [channels, 1, kernel, kernel], uniform(-bound, bound));
    let bias = param("bias", [channels], uniform(-bound, bound));
    x.conv2d(weight, stride, padding, 1, channels) + bias.reshape([channels, 1, 1])
}

/// Convolves `x [n, c, length]`: `weight [out_channels, c, kernel]` and `bias
/// [out_channels]`, both uniform within `1 / sqrt(c * kernel)` of 0.
#[crate::layer]
pub fn conv1d(
    x: Tensor,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor {
    let bound = 1.0 / ((x.dim(1) * kernel) as f64).sqrt();
    let weight = param("weight", [out_channels, x.dim(1), kernel], uniform(-bound, bound));
    let bias = param("bias", [out_channels], uniform(-bound, bound));
    x.conv1d(weight, stride, padding, 1, 1) + bias.reshape([out_channels, 1])
}

/// Applies [`conv2d_without_bias`], then [`batch_norm`].
#[crate::layer]
pub fn conv_norm(
    x: Tensor,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor {
    batch_norm(conv2d_without_bias(x, out_channels, kernel, stride, padding))
}

/// Applies [`conv_norm`], then a ReLU.
#[crate::layer]
pub fn conv_norm_relu(
    x: Tensor,
    out_channels: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor {
    conv_norm(x, out_channels, kernel, stride, padding).relu()
}
