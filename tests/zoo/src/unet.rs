//! U-Net with padded convolutions and batch normalization. Source: Ronneberger et al. 2015.

use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
};

/// A U-Net of two levels below the first for square images of this side and three channels, with
/// two classes for each pixel.
#[must_use]
pub fn unet(batch: usize, width: usize, side: usize) -> Model {
    let first = double_conv(Layers::new(DType::F32, &[batch, 3, side, side], false), width);
    let skips = [first.here()];
    let second = double_conv(first.max_pool(2, 2, 0), 2 * width);
    let skips = [skips[0], second.here()];
    let mut it = double_conv(second.max_pool(2, 2, 0), 4 * width);
    for (level, channels) in [(1, 2 * width), (0, width)] {
        let weight = it.parameter("weight", &[2 * channels, channels, 2, 2]);
        let settings = [integer(2), integer(0), integer(0), integer(1), integer(1)];
        let up = it.apply("conv_transpose2d", &[&[weight][..], &settings].concat()).ended();
        let above = up.here();
        let both = up.at(skips[level]).branches(&[&|it| it, &|it| it.at(above)]);
        it = double_conv(both, channels);
    }
    let it = it.conv(2, 1, 1, 0).apply("permute", &[list(&[0, 2, 3, 1])]);
    it.classified(&[batch, side, side])
}

fn double_conv(it: Layers, filters: usize) -> Layers {
    (0..2).fold(it, |it, _| it.normal_conv(filters, [3; 2], 1, [1; 2]).apply("relu", &[]))
}
