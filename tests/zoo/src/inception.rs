//! Inception-v3 without its auxiliary classifier. Source: Szegedy et al. 2016, with the widths of
//! `torchvision`.

use soybean_plan::DType;

use crate::{Layers, Model, layers::list};

/// Inception-v3 for images of 299 x 299.
#[must_use]
pub fn inception_v3(batch: usize) -> Model {
    let it = Layers::new(DType::F32, &[batch, 3, 299, 299], true);
    let mut it = valid(valid(it, 32, 3, 2), 32, 3, 1);
    it = same(it, 64, 3).max_pool(3, 2, 0);
    it = valid(same(it, 80, 1), 192, 3, 1).max_pool(3, 2, 0);
    for pooled in [32, 64, 64] {
        it = squares(it, pooled);
    }
    it = halved(it);
    for width in [128, 160, 160, 192] {
        it = crosses(it, width);
    }
    it = halved_by_crosses(it);
    for _ in 0..2 {
        it = forks(it);
    }
    it.apply("mean", &[list(&[2, 3])]).dropout().dense(1000).classified(&[batch])
}

/// Adds a convolution with batch normalization and ReLU, by window `[rows, columns]`.
fn conv(it: Layers, filters: usize, window: [usize; 2], stride: usize, padded: bool) -> Layers {
    let padding = if padded { window.map(|it| it / 2) } else { [0; 2] };
    it.normal_conv(filters, window, stride, padding).apply("relu", &[])
}

/// Adds a convolution that keeps the image's size.
fn same(it: Layers, filters: usize, window: usize) -> Layers {
    conv(it, filters, [window; 2], 1, true)
}

/// Adds a convolution without padding.
fn valid(it: Layers, filters: usize, window: usize, stride: usize) -> Layers {
    conv(it, filters, [window; 2], stride, false)
}

/// Adds a convolution with a row of seven pixels.
fn row(it: Layers, filters: usize) -> Layers {
    conv(it, filters, [1, 7], 1, true)
}

/// Adds a convolution with a column of seven pixels.
fn column(it: Layers, filters: usize) -> Layers {
    conv(it, filters, [7, 1], 1, true)
}

fn pooled(it: Layers, filters: usize) -> Layers {
    same(it.avg_pool(3, 1, 1), filters, 1)
}

fn squares(it: Layers, n_pooled: usize) -> Layers {
    it.branches(&[
        &|it| same(it, 64, 1),
        &|it| same(same(it, 48, 1), 64, 5),
        &|it| same(same(same(it, 64, 1), 96, 3), 96, 3),
        &|it| pooled(it, n_pooled),
    ])
}

fn halved(it: Layers) -> Layers {
    it.branches(&[
        &|it| valid(it, 384, 3, 2),
        &|it| valid(same(same(it, 64, 1), 96, 3), 96, 3, 2),
        &|it| it.max_pool(3, 2, 0),
    ])
}

fn crosses(it: Layers, width: usize) -> Layers {
    it.branches(&[
        &|it| same(it, 192, 1),
        &|it| column(row(same(it, width, 1), width), 192),
        &|it| row(column(row(column(same(it, width, 1), width), width), width), 192),
        &|it| pooled(it, 192),
    ])
}

fn halved_by_crosses(it: Layers) -> Layers {
    it.branches(&[
        &|it| valid(same(it, 192, 1), 320, 3, 2),
        &|it| valid(column(row(same(it, 192, 1), 192), 192), 192, 3, 2),
        &|it| it.max_pool(3, 2, 0),
    ])
}

fn forks(it: Layers) -> Layers {
    let fork = |it: Layers| {
        it.branches(&[&|it| conv(it, 384, [1, 3], 1, true), &|it| conv(it, 384, [3, 1], 1, true)])
    };
    it.branches(&[
        &|it| same(it, 320, 1),
        &|it| fork(same(it, 384, 1)),
        &|it| fork(same(same(it, 448, 1), 384, 3)),
        &|it| pooled(it, 192),
    ])
}
