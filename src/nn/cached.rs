//! Attention with a cache, for texts that are generated token by token.
//!
//! In each prediction of an inference model, the queries of new tokens read the keys and values of
//! all tokens so far, which are states. The parameters have the same names as those of the
//! functions of [`nn`](super) with the same names, so such a model takes the weights of a trained
//! one.

use super::{dense::linear, feed_forward, norm::layer_norm};
use crate::prelude::*;

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
///         let h = nn::embedding(token, 5, 8);
///         let h = nn::cached::multi_head_attention(h, n_before, 2, 16);
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
pub fn multi_head_attention(
    x: Tensor,
    n_before: Tensor,
    n_heads: usize,
    capacity: usize,
) -> Tensor {
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let features = width / n_heads;
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    let keys = state("keys", [batch, n_heads, capacity, features]);
    let values = state("values", [batch, n_heads, capacity, features]);
    let keys = keys.assign(with_new(keys, key, n_before));
    let values = values.assign(with_new(values, value, n_before));
    let place =
        n_before.to_f32().reshape([batch, 1, 1, 1]) + arange(length).to_f32().reshape([length, 1]);
    let is_seen = arange(capacity).to_f32().le(place);
    let scores = query.matmul(keys.transpose()) / (features as f64).sqrt();
    let attended = scores.where_(is_seen, -1e30).softmax(-1).matmul(values);
    linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Splits `[batch, length, width]` into `[batch, n_heads, length, width / n_heads]`.
#[crate::layer]
fn heads(x: Tensor, n_heads: usize) -> Tensor {
    let features = x.dim(2) / n_heads;
    x.reshape([x.dim(0), x.dim(1), n_heads, features]).permute([0, 2, 1, 3])
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
pub fn transformer_block(x: Tensor, n_before: Tensor, n_heads: usize, capacity: usize) -> Tensor {
    let h = x + multi_head_attention(layer_norm(x), n_before, n_heads, capacity);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1))
}
