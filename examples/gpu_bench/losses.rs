//! The losses of the benchmark's models. Inputs that are "kept" are buffers of the model, which
//! stay on the devices; others come from the host in every step.

use soybean::{nn, prelude::*};

use super::{
    alexnet::{AlexNet, alexnet},
    gpt::{Gpt, gpt},
    vgg16::{Vgg16, vgg16},
};

/// The perceptron of the SoyBean paper: four layers of the input's width.
#[soybean::layer]
pub(crate) fn perceptron(x: Tensor, y: Tensor) -> Tensor {
    let mut h = x;
    for _ in 0..3 {
        h = nn::linear(h, x.dim(1)).relu();
    }
    nn::linear(h, x.dim(1)).cross_entropy(y)
}

#[soybean::layer]
pub(crate) fn kept_perceptron(y: Tensor, width: usize) -> Tensor {
    perceptron(buffer("x", [y.dim(0), width], uniform(-1.0, 1.0)), y)
}

/// Images `[n, 3, side, side]` that stay on the devices.
#[soybean::layer]
fn kept_images(n: usize, side: usize) -> Tensor {
    buffer("images", [n, 3, side, side], uniform(-1.0, 1.0))
}

#[soybean::layer]
pub(crate) fn of_alexnet(x: Tensor, y: Tensor) -> Tensor {
    let sizes = AlexNet { width: 64, hidden: 4096, n_classes: 1000 };
    alexnet(x, sizes).cross_entropy(y)
}

#[soybean::layer]
pub(crate) fn kept_alexnet(y: Tensor) -> Tensor {
    of_alexnet(kept_images(y.dim(0), 224), y)
}

#[soybean::layer]
pub(crate) fn small_alexnet(y: Tensor) -> Tensor {
    let sizes = AlexNet { width: 8, hidden: 32, n_classes: 16 };
    alexnet(kept_images(y.dim(0), 63), sizes).cross_entropy(y)
}

#[soybean::layer]
pub(crate) fn of_vgg16(x: Tensor, y: Tensor) -> Tensor {
    let sizes = Vgg16 { width: 64, hidden: 4096, n_classes: 1000 };
    vgg16(x, sizes).cross_entropy(y)
}

#[soybean::layer]
pub(crate) fn kept_vgg16(y: Tensor) -> Tensor {
    of_vgg16(kept_images(y.dim(0), 224), y)
}

#[soybean::layer]
pub(crate) fn small_vgg16(y: Tensor) -> Tensor {
    let sizes = Vgg16 { width: 8, hidden: 32, n_classes: 16 };
    vgg16(kept_images(y.dim(0), 32), sizes).cross_entropy(y)
}

/// GPT-2 small: twelve blocks of twelve heads. Its vocabulary of 50257 is padded to a multiple of
/// 128, as usual.
#[soybean::layer]
pub(crate) fn of_gpt(tokens: Tensor, next: Tensor) -> Tensor {
    let sizes = Gpt { vocabulary: 50304, width: 768, n_heads: 12, n_layers: 12, dropout: 0.1 };
    gpt(tokens, sizes).cross_entropy(next)
}

#[soybean::layer]
pub(crate) fn small_gpt(tokens: Tensor, next: Tensor) -> Tensor {
    let sizes = Gpt { vocabulary: 64, width: 32, n_heads: 4, n_layers: 2, dropout: 0.1 };
    gpt(tokens, sizes).cross_entropy(next)
}

/// A chain of products of square matrices whose elements keep their size. Only their mean is
/// fetched.
#[soybean::layer]
pub(crate) fn products(scale: Tensor, extent: usize) -> Tensor {
    let bound = (3.0 / extent as f64).sqrt();
    let w = param("w", [extent, extent], uniform(-bound, bound));
    let mut h = param("h", [extent, extent], uniform(-1.0, 1.0));
    for _ in 0..16 {
        h = h.matmul(w);
    }
    (h.mean(..) * scale).mean(..)
}
