//! MobileNetV2. Source: Sandler et al. 2018.

use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
};

/// MobileNetV2 for square images of this side. Each block has depthwise convolutions.
#[must_use]
pub fn mobilenet_v2(batch: usize, side: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, side, side], false);
    let mut it = it.normal_conv(32, [3; 2], 2, [1; 2]).apply("relu6", &[]);
    // Expansion, channels, blocks, and the stride of the first block.
    for (expansion, channels, n_blocks, stride) in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ] {
        for block in 0..n_blocks {
            let stride = if block == 0 { stride } else { 1 };
            it = inverted_residual(it, channels, stride, expansion);
        }
    }
    let it = it.normal_conv(1280, [1; 2], 1, [0; 2]).apply("relu6", &[]);
    it.apply("global_avg_pool2d", &[]).dense(1000).classified(&[batch])
}

fn inverted_residual(it: Layers, channels: usize, stride: usize, expansion: usize) -> Layers {
    let from = it.shape()[1];
    let layers = |it: Layers| {
        let it = match expansion {
            1 => it,
            _ => it.normal_conv(expansion * from, [1; 2], 1, [0; 2]).apply("relu6", &[]),
        };
        let it = depthwise(it, stride).apply("relu6", &[]);
        it.normal_conv(channels, [1; 2], 1, [0; 2])
    };
    if stride == 1 && from == channels { it.residual(layers, |it| it) } else { layers(it) }
}

/// Adds a convolution of 3 x 3 pixels of each channel by itself, with its bias.
fn depthwise(mut it: Layers, stride: usize) -> Layers {
    let channels = it.shape()[1];
    let weight = it.parameter("weight", &[channels, 1, 3, 3]);
    let bias = it.parameter("bias", &[channels, 1, 1]);
    let settings = [integer(stride), list(&[1, 1]), integer(1), integer(channels)];
    it.apply("conv2d", &[&[weight][..], &settings].concat()).apply("add", &[bias]).ended()
}
