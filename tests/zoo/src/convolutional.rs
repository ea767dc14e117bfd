//! Networks of convolutions and dense layers.

use soybean_plan::DType;

use crate::{Layers, Model};

/// Five convolutions of 3 x 3 pixels of one width, without biases; images have `side` x `side`
/// pixels. Source: the SoyBean paper's experiments, Wang et al. 2018.
#[must_use]
pub fn cnn5(batch: usize, channels: usize, side: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, channels, side, side], false);
    (0..5).fold(it, |it, _| it.conv(channels, 3, 1, 1)).averaged()
}

/// Source: Krizhevsky 2014.
#[must_use]
pub fn alexnet(batch: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, 224, 224], true)
        .conv(64, 11, 4, 2)
        .max_pool(3, 2, 0)
        .conv(192, 5, 1, 2)
        .max_pool(3, 2, 0)
        .conv(384, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .conv(256, 3, 1, 1)
        .max_pool(3, 2, 0);
    dense_head(it, batch)
}

/// Source: Simonyan & Zisserman 2015.
#[must_use]
pub fn vgg16(batch: usize) -> Model {
    let mut it = Layers::new(DType::F32, &[batch, 3, 224, 224], true);
    for (filters, n_layers) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        it = (0..n_layers).fold(it, |it, _| it.conv(filters, 3, 1, 1)).max_pool(2, 2, 0);
    }
    dense_head(it, batch)
}

/// Two hidden layers of 4096 units and 1000 classes.
fn dense_head(it: Layers, batch: usize) -> Model {
    let hidden = |it: Layers| it.dense(4096).apply("relu", &[]);
    hidden(hidden(it.apply("flatten", &[]))).dense(1000).classified(&[batch])
}
