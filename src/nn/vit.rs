//! Parts of the Vision Transformer. Source: Dosovitskiy et al. 2021.

use super::{
    attention::{MultiHeadAttention, feed_forward, multi_head_attention},
    convolution::{Window, conv2d},
    norm::layer_norm_with,
};
use crate::prelude::*;

/// The options of [`patch_embedding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchEmbedding {
    /// The rows and columns of pixels of a patch.
    pub patch: usize,
    /// The features of a patch.
    pub width: usize,
}

/// Cuts images `x [n, c, h, w]` into square patches, and maps each of them to `width` features:
/// `[n, n_patches, width]`, row by row. It is a [`conv2d`] whose stride is its kernel.
#[crate::layer]
pub fn patch_embedding(x: Tensor, options: PatchEmbedding) -> Tensor {
    let PatchEmbedding { patch, width } = options;
    let n_patches = (x.dim(2) / patch) * (x.dim(3) / patch);
    let window = Window { kernel: patch, stride: patch, padding: 0 };
    conv2d(x, width, window).reshape([x.dim(0), width, n_patches]).transpose()
}

/// The options of [`vit_block`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VitBlock {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The hidden features of [`feed_forward`].
    pub hidden: usize,
    /// The `eps` of both norms: 1e-12 in Hugging Face's models.
    pub eps: f64,
}

/// Applies a block of the Vision Transformer: [`multi_head_attention`] of all positions and a
/// [`feed_forward`], each after a [`layer_norm_with`] and with a shortcut.
#[crate::layer]
pub fn vit_block(x: Tensor, options: VitBlock) -> Tensor {
    let VitBlock { n_heads, hidden, eps } = options;
    let attention = MultiHeadAttention { n_heads, mask: "none" };
    let h = x + multi_head_attention(layer_norm_with(x, eps), attention);
    h + feed_forward(layer_norm_with(h, eps), hidden)
}
