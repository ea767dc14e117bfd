//! Blocks of U-Net. Source: Ronneberger et al. 2015, with padded convolutions and batch norms as is
//! usual today.

use super::convolution::{Window, conv_norm_relu, conv_transpose2d};
use crate::prelude::*;

/// Applies two convolutions of 3 x 3 pixels, each with a batch norm and a ReLU: `[n, c, h, w]` to
/// `[n, out_channels, h, w]`.
#[crate::layer]
pub fn double_conv(x: Tensor, out_channels: usize) -> Tensor {
    let window = Window { kernel: 3, stride: 1, padding: 1 };
    conv_norm_relu(conv_norm_relu(x, out_channels, window), out_channels, window)
}

/// Goes one level down: a maximum over 2 x 2 pixels, and a [`double_conv`] to twice the channels.
/// Height and width of `x [n, c, h, w]` are even; the result is `[n, 2 * c, h / 2, w / 2]`.
///
/// # Panics
/// If the height or the width is odd; in a model, this is a compile error.
#[crate::layer]
pub fn unet_down(x: Tensor) -> Tensor {
    let (height, width) = (x.dim(2), x.dim(3));
    assert!(
        height % 2 == 0 && width % 2 == 0,
        "a level down halves height and width, which are {height} and {width}",
    );
    double_conv(x.max_pool2d(2, 2, 0), 2 * x.dim(1))
}

/// Goes one level up, from `x [n, 2 * c, h / 2, w / 2]` to the shape of `skip [n, c, h, w]`: a
/// [`conv_transpose2d`] of 2 x 2 pixels, and a [`double_conv`] of `skip` and its result.
#[crate::layer]
pub fn unet_up(x: Tensor, skip: Tensor) -> Tensor {
    let channels = skip.dim(1);
    let h = conv_transpose2d(x, channels, Window { kernel: 2, stride: 2, padding: 0 });
    double_conv(concat([skip, h], 1), channels)
}
