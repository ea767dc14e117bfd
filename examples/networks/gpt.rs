//! A decoder like GPT-2. Source: Radford et al. 2019.

use soybean::{nn, prelude::*};

/// Tokens `[batch, length]` to logits `[batch, length, vocabulary]` of the next tokens; `p` is the
/// probability of dropout.
#[soybean::layer]
pub(crate) fn gpt(
    tokens: Tensor,
    vocabulary: usize,
    width: usize,
    n_heads: usize,
    n_layers: usize,
    p: f64,
) -> Tensor {
    let places = param("places", [tokens.dim(1), width], normal(0.02));
    let words = param("words", [vocabulary, width], normal(0.02));
    let mut h = (tokens.embedding(words) + places).dropout(p);
    for _ in 0..n_layers {
        h = nn::transformer_block(h, nn::TransformerBlock { n_heads, mask: "causal", p });
    }
    nn::linear_without_bias(nn::layer_norm(h), vocabulary)
}
