//! Attention and transformer blocks.

use super::{dense::linear, norm::layer_norm};
use crate::prelude::*;

/// The options of [`multi_head_attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiHeadAttention {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The positions that are seen: all with `"none"`, or none after the own with `"causal"`.
    pub mask: &'static str,
}

/// Applies self-attention to `x [batch, length, width]` with `n_heads` heads of `width / n_heads`
/// features. Four [`linear`] layers compute queries, keys, values and the result. Each head is a
/// contiguous range of the width, so that heads can be partitioned. Source: Vaswani et al. 2017.
#[crate::layer]
pub fn multi_head_attention(x: Tensor, options: MultiHeadAttention) -> Tensor {
    let MultiHeadAttention { n_heads, mask } = options;
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    let scale = 1.0 / ((width / n_heads) as f64).sqrt();
    let attended = query.attention_with(key, value, mask, .., 0.0, scale, 0.0);
    linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Splits `[batch, length, width]` into `[batch, n_heads, length, width / n_heads]`.
#[crate::layer]
pub(super) fn heads(x: Tensor, n_heads: usize) -> Tensor {
    let width = x.dim(2);
    assert!(n_heads > 0 && width % n_heads == 0, "{n_heads} heads do not divide {width}");
    x.reshape([x.dim(0), x.dim(1), n_heads, width / n_heads]).permute([0, 2, 1, 3])
}

/// Applies [`linear`] to `hidden` features, GELU, and [`linear`] back.
#[crate::layer]
pub fn feed_forward(x: Tensor, hidden: usize) -> Tensor {
    linear(linear(x, hidden).gelu(), x.dim(-1))
}

/// The options of [`transformer_block`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerBlock {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The positions that are seen, as in [`MultiHeadAttention`].
    pub mask: &'static str,
    /// The probability with which training drops an element of a branch.
    pub p: f64,
}

/// Applies a pre-norm transformer block: [`multi_head_attention`] and a [`feed_forward`] of four
/// times the width, each with a shortcut and with dropout. Sources: Radford et al. 2019, Xiong et
/// al. 2020.
#[crate::layer]
pub fn transformer_block(x: Tensor, options: TransformerBlock) -> Tensor {
    let TransformerBlock { n_heads, mask, p } = options;
    let attention = MultiHeadAttention { n_heads, mask };
    let h = x + multi_head_attention(layer_norm(x), attention).dropout(p);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1)).dropout(p)
}
