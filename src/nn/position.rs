//! Positions of tokens in attention.

use crate::prelude::*;

/// Rotates the features of queries or keys `x [.., length, features]` by angles that grow with the
/// position: feature `i` of the first half and feature `i` of the second half are a pair, which
/// position `p` turns by `p * theta^(-2 i / features)`.
///
/// The frequencies are computed in the model, so no table is loaded. Llama, Mistral and GPT-NeoX
/// pair the halves like this in Hugging Face's files. Source: Su et al. 2021.
#[crate::layer]
pub fn rotary(x: Tensor, theta: f64) -> Tensor {
    let length = x.dim(-2);
    rotary_at(x, arange(length).reshape([length, 1]), theta)
}

/// Rotates queries or keys `x [.., length, features]` as [`rotary`] does, at these positions, `[..,
/// length, 1]`: those of texts that begin before `x`, for example.
///
/// # Panics
/// If the number of features is odd; in a model, this is a compile error.
#[crate::layer]
pub fn rotary_at(x: Tensor, positions: Tensor, theta: f64) -> Tensor {
    let features = x.dim(-1);
    assert!(features % 2 == 0, "rotary positions turn pairs of features, found {features}");
    let half = features / 2;
    let exponent = -2.0 * theta.ln() / (features as f64);
    let angle = positions * (arange(half) * exponent).exp();
    let (first, second) = (x.slice(-1, 0, half), x.slice(-1, half, 2 * half));
    let turned = first * angle.cos() - second * angle.sin();
    concat([turned, second * angle.cos() + first * angle.sin()], -1)
}
