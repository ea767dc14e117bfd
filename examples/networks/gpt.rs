//! A decoder like GPT-2. Source: Radford et al. 2019.

use soybean::{nn, prelude::*};

/// The sizes of a GPT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpt {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_layers: usize,
    /// The probability of dropout.
    pub(crate) dropout: f64,
}

/// Tokens `[batch, length]` to logits `[batch, length, vocabulary]` of the next tokens.
#[soybean::layer]
pub(crate) fn gpt(tokens: Tensor, sizes: Gpt) -> Tensor {
    let Gpt { vocabulary, width, n_heads, n_layers, dropout } = sizes;
    let places = param("places", [tokens.dim(1), width], normal(0.02));
    let words = param("words", [vocabulary, width], normal(0.02));
    let mut h = (tokens.embedding(words) + places).dropout(dropout);
    let block = nn::TransformerBlock { n_heads, mask: "causal", p: dropout };
    for _ in 0..n_layers {
        h = nn::transformer_block(h, block);
    }
    nn::linear_without_bias(nn::layer_norm(h), vocabulary)
}
