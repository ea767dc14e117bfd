//! Attention with a cache, for texts that are generated token by token.
//!
//! In each prediction of an inference model, the queries of new tokens read the keys and values of
//! all tokens so far, which are states. The parameters have the same names as those of the
//! functions of [`nn`](super) with the same names, so such a model takes the weights of a trained
//! one.

use super::{
    attention::{feed_forward, heads},
    dense::{linear, linear_without_bias},
    gpt2::{gpt2_feed_forward, transposed_linear},
    llama::{key_value_width, swiglu},
    norm::{layer_norm, rms_norm_with},
    position::rotary_at,
};
use crate::prelude::*;

/// The options of attention with a cache, and of blocks that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The most tokens of a text that are kept.
    pub capacity: usize,
}

/// Applies self-attention as [`nn::multi_head_attention`](super::multi_head_attention) does if it
/// is causal, to the next tokens of each text, `x [batch, length, width]`.
///
/// `n_before [batch]`, integers, is the number of tokens of each text in earlier predictions. Their
/// keys and values are the states `keys` and `values`, each `[batch, n_heads, capacity, width /
/// n_heads]`. A text has at most `capacity` tokens: later ones are not kept, and not seen.
///
/// ```
/// #[soybean::model(gpus = 2, mode = "inference")]
/// mod decoder {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(token: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
///         let h = nn::embedding(token, nn::Embedding { vocabulary: 5, width: 8 });
///         let attention = nn::cached::Attention { n_heads: 2, capacity: 16 };
///         let h = nn::cached::multi_head_attention(h, n_before, attention);
///         nn::linear(h, 5).argmax(-1)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut predictor = decoder::Predictor::new(soybean::Config::default())?;
///     let mut token = vec![1, 4];
///     for n in 0..3 {
///         let batch = decoder::Batch { token: &token, n_before: &[n; 2] };
///         token = predictor.predict(&batch)?.remove(0).integers;
///     }
///     Ok(())
/// }
/// ```
#[crate::layer]
pub fn multi_head_attention(x: Tensor, n_before: Tensor, options: Attention) -> Tensor {
    let Attention { n_heads, capacity } = options;
    let width = x.dim(2);
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    linear(attention(query, key, value, n_before, capacity), width)
}

/// Attends with the queries of new tokens, `[batch, n_heads, length, features]`, to the keys and
/// values of all tokens so far, and returns `[batch, length, n_heads * features]`. The new keys and
/// values are `[batch, n_key_value_heads, length, features]`; those before are the states.
#[crate::layer]
fn attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    n_before: Tensor,
    capacity: usize,
) -> Tensor {
    let (batch, n_heads, length, features) =
        (query.dim(0), query.dim(1), query.dim(2), query.dim(3));
    let n_kept_heads = key.dim(1);
    let keys = state("keys", [batch, n_kept_heads, capacity, features]);
    let values = state("values", [batch, n_kept_heads, capacity, features]);
    let keys = keys.assign(with_new(keys, key, n_before));
    let values = values.assign(with_new(values, value, n_before));
    let is_seen = arange(capacity).to_f32().le(places(n_before, length).unsqueeze(1));
    // Heads of queries that share keys and values follow each other.
    let query = query.reshape([batch, n_kept_heads, n_heads / n_kept_heads, length, features]);
    let scores = query.einsum("bkglf,bkcf->bkglc", keys) / (features as f64).sqrt();
    let weights = scores.where_(is_seen, -1e30).softmax(-1);
    let attended = weights.einsum("bkglc,bkcf->blkgf", values);
    attended.reshape([batch, length, n_heads * features])
}

/// Returns the positions of the new tokens in their texts, `[batch, 1, length, 1]`.
#[crate::layer]
fn places(n_before: Tensor, length: usize) -> Tensor {
    let first = n_before.to_f32().reshape([n_before.dim(0), 1, 1, 1]);
    first + arange(length).to_f32().reshape([length, 1])
}

/// Puts `new [batch, heads, length, features]` into `kept [batch, heads, capacity, features]`, from
/// the place `n_before [batch]` on.
#[crate::layer]
fn with_new(kept: Tensor, new: Tensor, n_before: Tensor) -> Tensor {
    let (batch, capacity, length) = (kept.dim(0), kept.dim(2), new.dim(2));
    let start = n_before.to_f32().reshape([batch, 1, 1]);
    let number = arange(capacity).to_f32().reshape([capacity, 1]) - start;
    if length == 1 {
        return new.where_(number.eq(0.0).unsqueeze(1), kept);
    }
    let is_number = number.eq(arange(length).to_f32());
    let moved = is_number.to_f32().einsum("bml,bhld->bhmd", new);
    let is_new = number.ge(0.0) * number.lt(length as f64);
    moved.where_(is_new.unsqueeze(1), kept)
}

/// Applies a pre-norm transformer block to the next tokens of each text, as
/// [`nn::transformer_block`](super::transformer_block) does if it is causal:
/// [`multi_head_attention`] with a cache and a [`feed_forward`] of four times the width, each with
/// a shortcut.
#[crate::layer]
pub fn transformer_block(x: Tensor, n_before: Tensor, options: Attention) -> Tensor {
    let h = x + multi_head_attention(layer_norm(x), n_before, options);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1))
}

/// Applies self-attention as [`nn::gpt2_attention`](super::gpt2_attention) does, to the next tokens
/// of each text, with a cache as in [`multi_head_attention`].
#[crate::layer]
pub fn gpt2_attention(x: Tensor, n_before: Tensor, options: Attention) -> Tensor {
    let Attention { n_heads, capacity } = options;
    let width = x.dim(2);
    let [query, key, value] = transposed_linear(x, 3 * width).chunk(3, -1);
    let (query, key, value) = (heads(query, n_heads), heads(key, n_heads), heads(value, n_heads));
    transposed_linear(attention(query, key, value, n_before, capacity), width)
}

/// Applies a block of GPT-2 to the next tokens of each text, as
/// [`nn::gpt2_block`](super::gpt2_block) does to whole texts.
#[crate::layer]
pub fn gpt2_block(x: Tensor, n_before: Tensor, options: Attention) -> Tensor {
    let h = x + gpt2_attention(layer_norm(x), n_before, options);
    h + gpt2_feed_forward(layer_norm(h))
}

/// The options of [`grouped_query_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedQueryAttention {
    /// The number of heads of queries, which divides the width.
    pub n_heads: usize,
    /// The number of heads of keys and values, which divides that of the queries.
    pub n_key_value_heads: usize,
    /// The base of the frequencies of [`nn::rotary`](super::rotary).
    pub rope_theta: f64,
    /// The most tokens of a text that are kept.
    pub capacity: usize,
}

/// Applies self-attention as [`nn::grouped_query_attention`](super::grouped_query_attention) does,
/// to the next tokens of each text, with a cache as in [`multi_head_attention`]. The states have
/// `n_key_value_heads` heads, and keys are stored as they are after their rotation.
#[crate::layer]
pub fn grouped_query_attention(
    x: Tensor,
    n_before: Tensor,
    options: GroupedQueryAttention,
) -> Tensor {
    let GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta, capacity } = options;
    let (width, places) = (x.dim(2), places(n_before, x.dim(1)));
    let narrow = key_value_width(width, n_heads, n_key_value_heads);
    let query = rotary_at(heads(linear_without_bias(x, width), n_heads), places, rope_theta);
    let key = heads(linear_without_bias(x, narrow), n_key_value_heads);
    let key = rotary_at(key, places, rope_theta);
    let value = heads(linear_without_bias(x, narrow), n_key_value_heads);
    linear_without_bias(attention(query, key, value, n_before, capacity), width)
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
    /// The base of the frequencies of [`nn::rotary`](super::rotary).
    pub rope_theta: f64,
    /// The `eps` of both norms.
    pub eps: f64,
    /// The most tokens of a text that are kept.
    pub capacity: usize,
}

/// Applies a block of Llama to the next tokens of each text, as
/// [`nn::llama_block`](super::llama_block) does to whole texts.
#[crate::layer]
pub fn llama_block(x: Tensor, n_before: Tensor, options: LlamaBlock) -> Tensor {
    let LlamaBlock { n_heads, n_key_value_heads, hidden, rope_theta, eps, capacity } = options;
    let attention = GroupedQueryAttention { n_heads, n_key_value_heads, rope_theta, capacity };
    let h = x + grouped_query_attention(rms_norm_with(x, eps), n_before, attention);
    h + swiglu(rms_norm_with(h, eps), hidden)
}
