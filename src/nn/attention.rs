//! Attention and transformer blocks.

use super::{dense::linear, norm::layer_norm};
use crate::prelude::*;

/// Applies self-attention to `x [batch, length, width]` with `n_heads` heads of `width / n_heads`
/// features. If `is_causal`, no position attends to a later one. Four [`linear`] layers compute
/// queries, keys, values and the result. Each head is a contiguous range of the width, so that
/// heads can be partitioned. Source: Vaswani et al. 2017.
#[crate::layer]
pub fn multi_head_attention(x: Tensor, n_heads: usize, is_causal: bool) -> Tensor {
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    let attended = query.scaled_dot_product_attention(key, value, is_causal);
    linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Splits `[batch, length, width]` into `[batch, n_heads, length, width / n_heads]`.
#[crate::layer]
pub(super) fn heads(x: Tensor, n_heads: usize) -> Tensor {
    let features = x.dim(2) / n_heads;
    x.reshape([x.dim(0), x.dim(1), n_heads, features]).permute([0, 2, 1, 3])
}

/// Applies [`linear`] to `hidden` features, GELU, and [`linear`] back.
#[crate::layer]
pub fn feed_forward(x: Tensor, hidden: usize) -> Tensor {
    linear(linear(x, hidden).gelu(), x.dim(-1))
}

/// Applies a pre-norm transformer block: [`multi_head_attention`] and a [`feed_forward`] of four
/// times the width, each with a shortcut and with dropout of probability `p`. Sources: Radford et
/// al. 2019, Xiong et al. 2020.
#[crate::layer]
pub fn transformer_block(x: Tensor, n_heads: usize, is_causal: bool, p: f64) -> Tensor {
    let h = x + multi_head_attention(layer_norm(x), n_heads, is_causal).dropout(p);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1)).dropout(p)
}
