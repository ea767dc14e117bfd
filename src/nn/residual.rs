//! Residual blocks. Source: He et al. 2016.

use super::convolution::{Window, conv_norm, conv_norm_relu};
use crate::prelude::*;

/// The options of [`basic_block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// The channels of the result.
    pub out_channels: usize,
    /// The stride of the first convolution.
    pub stride: usize,
}

/// Applies two convolutions of 3 x 3 pixels with a shortcut: `[n, c, h, w]` to `[n, out_channels, h
/// / stride, w / stride]`. If the shape changes, the shortcut is a convolution of 1 x 1 pixels.
#[crate::layer]
pub fn basic_block(x: Tensor, options: BasicBlock) -> Tensor {
    let BasicBlock { out_channels, stride } = options;
    let h = conv_norm_relu(x, out_channels, Window { kernel: 3, stride, padding: 1 });
    let h = conv_norm(h, out_channels, Window { kernel: 3, stride: 1, padding: 1 });
    (h + shortcut(x, out_channels, stride)).relu()
}

/// The options of [`bottleneck`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The channels between the convolutions, a fourth of those of the result.
    pub width: usize,
    /// The stride of the second convolution.
    pub stride: usize,
}

/// Convolutions of 1 x 1, 3 x 3 and 1 x 1 pixels with a shortcut: `[n, c, h, w]` to `[n, 4 * width,
/// h / stride, w / stride]`, with `width` channels between them. The second convolution has the
/// stride, as in `torchvision`.
#[crate::layer]
pub fn bottleneck(x: Tensor, options: Bottleneck) -> Tensor {
    let Bottleneck { width, stride } = options;
    let point = Window { kernel: 1, stride: 1, padding: 0 };
    let narrow = conv_norm_relu(x, width, point);
    let h = conv_norm_relu(narrow, width, Window { kernel: 3, stride, padding: 1 });
    (conv_norm(h, 4 * width, point) + shortcut(x, 4 * width, stride)).relu()
}

/// Returns the tensor itself, or a convolution of it if the block changes its shape.
#[crate::layer]
fn shortcut(x: Tensor, out_channels: usize, stride: usize) -> Tensor {
    if stride == 1 && x.dim(1) == out_channels {
        x
    } else {
        conv_norm(x, out_channels, Window { kernel: 1, stride, padding: 0 })
    }
}
