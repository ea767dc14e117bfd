//! Attention to several texts in a row.
//!
//! Short texts one after another fill a row without padding. Integers `segments [batch, length]`
//! number the text of each position, and a position attends to those of its own text only. The
//! parameters have the same names as those of the functions of [`nn`](super) with the same names,
//! so such a model takes the same weights.
//!
//! A text has the results that it has alone if its positions begin at 0: those of embeddings are
//! tensors of the batch then. Rotary positions may begin anywhere, because only their differences
//! count. Source: Krell et al. 2021.

use super::{
    attention::{MultiHeadAttention, TransformerBlock, feed_forward, heads},
    dense::{linear, linear_without_bias},
    gpt2::{Gpt2Attention, Gpt2Block, gpt2_feed_forward, transposed_linear},
    llama::{GroupedQueryAttention, LlamaBlock, key_value_width, swiglu},
    norm::{layer_norm, rms_norm_with},
    position::rotary,
};
use crate::prelude::*;

/// Applies self-attention as [`nn::multi_head_attention`](super::multi_head_attention) does, to `x
/// [batch, length, width]`, in each segment.
///
/// ```
/// #[soybean::model(gpus = 2)]
/// mod writer {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(
///         tokens: Tensor<i32, 2, 8>,
///         positions: Tensor<i32, 2, 8>,
///         segments: Tensor<i32, 2, 8>,
///         next: Tensor<i32, 2, 8>,
///     ) -> Tensor {
///         let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 9, width: 8 });
///         h += nn::embedding(positions, nn::Embedding { vocabulary: 8, width: 8 });
///         let block = nn::TransformerBlock { n_heads: 2, mask: "causal", p: 0.1 };
///         let h = nn::packed::transformer_block(h, segments, block);
///         // The last token of a text has no next one.
///         nn::linear(h, 9).cross_entropy_with(next, 1.0, -100, "mean", 0.0)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = writer::Trainer::new(soybean::Config::default())?;
///     trainer.step(&writer::Batch {
///         tokens: &[4, 7, 1, 5, 8, 2, 3, 0, 6, 6, 1, 2, 4, 5, 0, 0],
///         positions: &[0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2],
///         segments: &[0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1],
///         next: &[7, 1, -100, 8, 2, 3, 0, -100, 6, 1, 2, 4, -100, 0, 0, -100],
///     })?;
///     Ok(())
/// }
/// ```
#[crate::layer]
pub fn multi_head_attention(x: Tensor, segments: Tensor, options: MultiHeadAttention) -> Tensor {
    let MultiHeadAttention { n_heads, mask } = options;
    let width = x.dim(2);
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    linear(attention(query, key, value, segments, mask), width)
}

/// Attends with `[batch, n_heads, length, features]` in each segment, and returns `[batch, length,
/// n_heads * features]`.
#[crate::layer]
fn attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segments: Tensor,
    mask: &'static str,
) -> Tensor {
    let (batch, n_heads, length, features) =
        (query.dim(0), query.dim(1), query.dim(2), query.dim(3));
    let scale = 1.0 / (features as f64).sqrt();
    let segments = [segments, segments];
    let attended = query.attention_with(key, value, mask, segments, 0.0, scale, 0.0);
    attended.permute([0, 2, 1, 3]).reshape([batch, length, n_heads * features])
}

/// Applies a pre-norm transformer block as [`nn::transformer_block`](super::transformer_block)
/// does: [`multi_head_attention`] and a [`feed_forward`] of four times the width, each with a
/// shortcut and with dropout.
#[crate::layer]
pub fn transformer_block(x: Tensor, segments: Tensor, options: TransformerBlock) -> Tensor {
    let TransformerBlock { n_heads, mask, p } = options;
    let attention = MultiHeadAttention { n_heads, mask };
    let h = x + multi_head_attention(layer_norm(x), segments, attention).dropout(p);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1)).dropout(p)
}

/// Applies causal self-attention as [`nn::gpt2_attention`](super::gpt2_attention) does, in each
/// segment.
#[crate::layer]
pub fn gpt2_attention(x: Tensor, segments: Tensor, options: Gpt2Attention) -> Tensor {
    let Gpt2Attention { n_heads } = options;
    let width = x.dim(2);
    let [query, key, value] = transposed_linear(x, 3 * width).chunk(3, -1);
    let [query, key, value] = [heads(query, n_heads), heads(key, n_heads), heads(value, n_heads)];
    transposed_linear(attention(query, key, value, segments, "causal"), width)
}

/// Applies a block of GPT-2 as [`nn::gpt2_block`](super::gpt2_block) does: [`gpt2_attention`] and
/// [`gpt2_feed_forward`], each after a [`layer_norm`], with a shortcut and with dropout.
#[crate::layer]
pub fn gpt2_block(x: Tensor, segments: Tensor, options: Gpt2Block) -> Tensor {
    let Gpt2Block { n_heads, p } = options;
    let h = x + gpt2_attention(layer_norm(x), segments, Gpt2Attention { n_heads }).dropout(p);
    h + gpt2_feed_forward(layer_norm(h)).dropout(p)
}

/// Applies causal self-attention as
/// [`nn::grouped_query_attention`](super::grouped_query_attention) does, in each segment.
#[crate::layer]
pub fn grouped_query_attention(
    x: Tensor,
    segments: Tensor,
    options: GroupedQueryAttention,
) -> Tensor {
    let GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta } = options;
    let width = x.dim(2);
    let narrow = key_value_width(width, n_heads, n_key_value_heads);
    let query = rotary(heads(linear_without_bias(x, width), n_heads), rope_theta);
    let key = rotary(heads(linear_without_bias(x, narrow), n_key_value_heads), rope_theta);
    let value = heads(linear_without_bias(x, narrow), n_key_value_heads);
    linear_without_bias(attention(query, key, value, segments, "causal"), width)
}

/// Applies a block of Llama as [`nn::llama_block`](super::llama_block) does:
/// [`grouped_query_attention`] and [`swiglu`], each after a [`rms_norm_with`] and with a shortcut.
#[crate::layer]
pub fn llama_block(x: Tensor, segments: Tensor, options: LlamaBlock) -> Tensor {
    let LlamaBlock { n_heads, n_key_value_heads, hidden, rope_theta, eps } = options;
    let attention = GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta };
    let h = x + grouped_query_attention(rms_norm_with(x, eps), segments, attention);
    h + swiglu(rms_norm_with(h, eps), hidden)
}
