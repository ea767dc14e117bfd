//! Layers of BERT. Source: Devlin et al. 2019.

use super::{
    attention::{MultiHeadAttention, feed_forward, multi_head_attention},
    norm::layer_norm_with,
};
use crate::prelude::*;

/// Applies a layer of BERT: [`multi_head_attention`] of all positions and a [`feed_forward`] of
/// `hidden` features, each with a shortcut and then a [`layer_norm_with`] of `eps`; BERT has 1e-12.
#[crate::layer]
pub fn bert_layer(x: Tensor, n_heads: usize, hidden: usize, eps: f64) -> Tensor {
    let attention = MultiHeadAttention { n_heads, mask: "none" };
    let h = layer_norm_with(x + multi_head_attention(x, attention), eps);
    layer_norm_with(h + feed_forward(h, hidden), eps)
}
