//! Residual blocks. Source: He et al. 2016.

use super::convolution::{conv_norm, conv_norm_relu};
use crate::prelude::*;

/// Applies two convolutions of 3 x 3 pixels with a shortcut: `[n, c, h, w]` to `[n, out_channels, h
/// / stride, w / stride]`. If the shape changes, the shortcut is a convolution of 1 x 1 pixels.
#[crate::layer]
pub fn basic_block(x: Tensor, out_channels: usize, stride: usize) -> Tensor {
    let h = conv_norm_relu(x, out_channels, 3, stride, 1);
    (conv_norm(h, out_channels, 3, 1, 1) + shortcut(x, out_channels, stride)).relu()
}

/// Convolutions of 1 x 1, 3 x 3 and 1 x 1 pixels with a shortcut: `[n, c, h, w]` to `[n, 4 * width,
/// h / stride, w / stride]`, with `width` channels between them. The second convolution has the
/// stride, as in `torchvision`.
#[crate::layer]
pub fn bottleneck(x: Tensor, width: usize, stride: usize) -> Tensor {
    let narrow = conv_norm_relu(x, width, 1, 1, 0);
    let h = conv_norm_relu(narrow, width, 3, stride, 1);
    (conv_norm(h, 4 * width, 1, 1, 0) + shortcut(x, 4 * width, stride)).relu()
}

/// Returns the tensor itself, or a convolution of it if the block changes its shape.
#[crate::layer]
fn shortcut(x: Tensor, out_channels: usize, stride: usize) -> Tensor {
    if stride == 1 && x.dim(1) == out_channels {
        x
    } else {
        conv_norm(x, out_channels, 1, stride, 0)
    }
}
