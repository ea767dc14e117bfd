//! GPT-2 with low-rank adapters of queries, keys and values. Source: Hu et al. 2021.
//!
//! Its other weights have the names of those in `gpt2.rs`, whose mapping reads files of Hugging
//! Face.

use soybean::{
    nn::{self, Lora},
    prelude::*,
};

/// The sizes of a GPT-2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpt2 {
    pub(crate) vocabulary: usize,
    /// The number of learned positions.
    pub(crate) n_positions: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_layers: usize,
}

/// Tokens `[batch, length]` to logits of the next tokens, `[batch, length, vocabulary]`.
#[soybean::layer]
pub(crate) fn gpt2(tokens: Tensor, sizes: Gpt2, adapter: Lora) -> Tensor {
    let Gpt2 { vocabulary, n_positions, width, n_heads, n_layers } = sizes;
    let wte = param("wte", [vocabulary, width], normal(0.02));
    let wpe = param("wpe", [n_positions, width], normal(0.02));
    let mut h = tokens.embedding(wte) + wpe.slice(0, 0, tokens.dim(1));
    for _ in 0..n_layers {
        h = gpt2_block(h, n_heads, adapter);
    }
    nn::layer_norm(h).matmul(wte.transpose())
}

#[soybean::layer]
fn gpt2_block(x: Tensor, n_heads: usize, adapter: Lora) -> Tensor {
    let h = x + gpt2_attention(nn::layer_norm(x), n_heads, adapter);
    h + nn::gpt2_feed_forward(nn::layer_norm(h))
}

/// Causal self-attention, with an adapter of the layer of queries, keys and values.
#[soybean::layer]
fn gpt2_attention(x: Tensor, n_heads: usize, adapter: Lora) -> Tensor {
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let h = nn::transposed_linear(x, 3 * width) + nn::lora(x, 3 * width, adapter);
    let [query, key, value] = h.chunk(3, -1);
    let attended = heads(query, n_heads).scaled_dot_product_attention(
        heads(key, n_heads),
        heads(value, n_heads),
        true,
    );
    nn::transposed_linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Splits `[batch, length, width]` into `[batch, n_heads, length, width / n_heads]`.
#[soybean::layer]
fn heads(x: Tensor, n_heads: usize) -> Tensor {
    let features = x.dim(2) / n_heads;
    x.reshape([x.dim(0), x.dim(1), n_heads, features]).permute([0, 2, 1, 3])
}
