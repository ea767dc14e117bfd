//! Blocks of Llama: grouped heads, rotary positions, gated feed-forward layers. Sources: Touvron et
//! al. 2023; Ainslie et al. 2023 (grouped queries); Shazeer 2020 (gates).

use super::{attention::heads, dense::linear_without_bias, norm::rms_norm_with, position::rotary};
use crate::prelude::*;

/// The options of [`grouped_query_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedQueryAttention {
    /// The number of heads of queries, which divides the width.
    pub n_heads: usize,
    /// The number of heads of keys and values, which divides that of the queries.
    pub n_key_value_heads: usize,
    /// The base of the frequencies of [`rotary`]: 10,000 in Llama 2, 500,000 in Llama 3.
    pub rope_theta: f64,
}

/// Applies causal self-attention to `x [batch, length, width]` with `n_heads` heads of queries,
/// whose positions are [`rotary`] with `rope_theta`. Each of `n_key_value_heads` heads of keys and
/// values serves `n_heads / n_key_value_heads` heads of queries in a row.
///
/// The four [`linear_without_bias`] are `q_proj`, `k_proj`, `v_proj` and `o_proj` of Hugging Face's
/// Llama.
#[crate::layer]
pub fn grouped_query_attention(x: Tensor, options: GroupedQueryAttention) -> Tensor {
    let GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta } = options;
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let narrow = key_value_width(width, n_heads, n_key_value_heads);
    let query = rotary(heads(linear_without_bias(x, width), n_heads), rope_theta);
    let key = rotary(heads(linear_without_bias(x, narrow), n_key_value_heads), rope_theta);
    let value = heads(linear_without_bias(x, narrow), n_key_value_heads);
    let attended = query.scaled_dot_product_attention(key, value, true);
    linear_without_bias(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Returns the features of all heads of keys, or of values.
#[crate::layer]
pub(super) fn key_value_width(width: usize, n_heads: usize, n_key_value_heads: usize) -> usize {
    assert!(n_heads > 0 && width % n_heads == 0, "{n_heads} heads do not divide {width}");
    assert!(
        n_key_value_heads > 0 && n_heads % n_key_value_heads == 0,
        "{n_key_value_heads} heads of keys and values do not divide {n_heads} heads of queries",
    );
    width / n_heads * n_key_value_heads
}

/// Computes `down(silu(gate(x)) * up(x))` with `hidden` features between.
///
/// The three [`linear_without_bias`] are `gate_proj`, `up_proj` and `down_proj` of Hugging Face's
/// Llama.
#[crate::layer]
pub fn swiglu(x: Tensor, hidden: usize) -> Tensor {
    let gate = linear_without_bias(x, hidden).silu();
    linear_without_bias(gate * linear_without_bias(x, hidden), x.dim(-1))
}

/// The options of [`llama_block`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaBlock {
    /// The number of heads of queries, which divides the width.
    pub n_heads: usize,
    /// The number of heads of keys and values, which divides that of the queries.
    pub n_key_value_heads: usize,
    /// The hidden features of [`swiglu`].
    pub hidden: usize,
    /// The base of the frequencies of [`rotary`]: 10,000 in Llama 2, 500,000 in Llama 3.
    pub rope_theta: f64,
    /// The `eps` of both norms: 1e-6 or 1e-5.
    pub eps: f64,
}

/// Applies a block of Llama: [`grouped_query_attention`] and [`swiglu`], each after a
/// [`rms_norm_with`] and with a shortcut.
#[crate::layer]
pub fn llama_block(x: Tensor, options: LlamaBlock) -> Tensor {
    let LlamaBlock { n_heads, n_key_value_heads, hidden, rope_theta, eps } = options;
    let attention = GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta };
    let h = x + grouped_query_attention(rms_norm_with(x, eps), attention);
    h + swiglu(rms_norm_with(h, eps), hidden)
}
