//! Layers of BERT. Source: Devlin et al. 2019.

use super::{
    attention::{MultiHeadAttention, feed_forward, multi_head_attention},
    norm::layer_norm_with,
};
use crate::prelude::*;

/// The options of [`bert_layer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BertLayer {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The hidden features of [`feed_forward`].
    pub hidden: usize,
    /// The `eps` of both norms: 1e-12 in BERT.
    pub eps: f64,
}

/// Applies a layer of BERT: [`multi_head_attention`] of all positions and a [`feed_forward`], each
/// with a shortcut and then a [`layer_norm_with`].
#[crate::layer]
pub fn bert_layer(x: Tensor, options: BertLayer) -> Tensor {
    let BertLayer { n_heads, hidden, eps } = options;
    let attention = MultiHeadAttention { n_heads, mask: "none" };
    let h = layer_norm_with(x + multi_head_attention(x, attention), eps);
    layer_norm_with(h + feed_forward(h, hidden), eps)
}
