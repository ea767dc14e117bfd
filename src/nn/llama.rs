//! Blocks of Llama: grouped heads, rotary positions, gated feed-forward layers. Sources: Touvron et
//! al. 2023; Ainslie et al. 2023 (grouped queries); Shazeer 2020 (gates).

use super::{attention::heads, dense::linear_without_bias, norm::rms_norm_with, position::rotary};
use crate::prelude::*;

/// Applies causal self-attention to `x [batch, length, width]` with `n_heads` heads of queries,
/// whose positions are [`rotary`] with `rope_theta`. Each of `n_key_value_heads` heads of keys and
/// values serves `n_heads / n_key_value_heads` heads of queries in a row.
///
/// The four [`linear_without_bias`] are `q_proj`, `k_proj`, `v_proj` and `o_proj` of Hugging Face's
/// Llama.
#[crate::layer]
pub fn grouped_query_attention(
    x: Tensor,
    n_heads: usize,
    n_key_value_heads: usize,
    rope_theta: f64,
) -> Tensor {
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let narrow = width / n_heads * n_key_value_heads;
    let query = rotary(heads(linear_without_bias(x, width), n_heads), rope_theta);
    let key = rotary(heads(linear_without_bias(x, narrow), n_key_value_heads), rope_theta);
    let value = heads(linear_without_bias(x, narrow), n_key_value_heads);
    let attended = query.scaled_dot_product_attention(key, value, true);
    linear_without_bias(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
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

/// Applies a block of Llama: [`grouped_query_attention`] and [`swiglu`], each after a
/// [`rms_norm_with`] of `eps` and with a shortcut.
#[crate::layer]
pub fn llama_block(
    x: Tensor,
    n_heads: usize,
    n_key_value_heads: usize,
    hidden: usize,
    rope_theta: f64,
    eps: f64,
) -> Tensor {
    let normal = rms_norm_with(x, eps);
    let h = x + grouped_query_attention(normal, n_heads, n_key_value_heads, rope_theta);
    h + swiglu(rms_norm_with(h, eps), hidden)
}
