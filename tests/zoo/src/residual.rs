//! Residual networks. Source: He et al. 2016.

use soybean_plan::DType;

use crate::{Layers, Model, layers::list};

/// ResNet-50 for images of 224 x 224.
#[must_use]
pub fn resnet50(batch: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, 224, 224], true);
    let mut it = conv(it, 64, 7, 2).apply("relu", &[]).max_pool(3, 2, 1);
    for (width, n_blocks, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for block in 0..n_blocks {
            let stride = if block == 0 { stride } else { 1 };
            it = residual_convs(it, &[(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]);
        }
    }
    it.apply("mean", &[list(&[2, 3])]).dense(1000).classified(&[batch])
}

/// ResNet-20 for images of 32 x 32.
#[must_use]
pub fn resnet20(batch: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, 32, 32], true);
    let mut it = conv(it, 16, 3, 1).apply("relu", &[]);
    for (width, stride) in [(16, 1), (32, 2), (64, 2)] {
        for block in 0..3 {
            let stride = if block == 0 { stride } else { 1 };
            it = residual_convs(it, &[(width, 3, stride), (width, 3, 1)]);
        }
    }
    it.apply("mean", &[list(&[2, 3])]).dense(10).classified(&[batch])
}

fn conv(it: Layers, filters: usize, window: usize, stride: usize) -> Layers {
    it.normal_conv(filters, [window; 2], stride, [window / 2; 2])
}

/// A residual block of convolutions: filters, window and stride of each.
fn residual_convs(it: Layers, convs: &[(usize, usize, usize)]) -> Layers {
    let channels = it.shape()[1];
    let stride: usize = convs.iter().map(|it| it.2).product();
    let filters = convs[convs.len() - 1].0;
    let layers = |it: Layers| {
        convs.iter().enumerate().fold(it, |it, (at, &(filters, window, stride))| {
            let it = if at == 0 { it } else { it.apply("relu", &[]) };
            conv(it, filters, window, stride)
        })
    };
    let shortcut = |it: Layers| match channels == filters && stride == 1 {
        true => it,
        false => conv(it, filters, 1, stride),
    };
    it.residual(layers, shortcut).apply("relu", &[])
}
