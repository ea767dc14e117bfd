//! GPT-2 with the names of Hugging Face. Source: Radford et al. 2019.

use soybean::{nn, prelude::*};

/// The names of `GPT2LMHeadModel` in files that `transformers` writes (`transformer.h.0..`) and in
/// the files of the published models (`h.0..`), as `soybean::weights::Mapping` reads them.
pub(crate) const HUGGING_FACE: &str = "\
    unused *.attn.bias
    unused *.attn.masked_bias
    unused lm_head.weight
    transformer.wte.weight = gpt2.wte
    transformer.wpe.weight = gpt2.wpe
    transformer.h.*.ln_1.* = gpt2.gpt2_block.*.layer_norm.0.*
    transformer.h.*.attn.c_attn.* = gpt2.gpt2_block.*.gpt2_attention.transposed_linear.0.*
    transformer.h.*.attn.c_proj.* = gpt2.gpt2_block.*.gpt2_attention.transposed_linear.1.*
    transformer.h.*.ln_2.* = gpt2.gpt2_block.*.layer_norm.1.*
    transformer.h.*.mlp.c_fc.* = gpt2.gpt2_block.*.gpt2_feed_forward.transposed_linear.0.*
    transformer.h.*.mlp.c_proj.* = gpt2.gpt2_block.*.gpt2_feed_forward.transposed_linear.1.*
    transformer.ln_f.* = gpt2.layer_norm.*
    wte.weight = gpt2.wte
    wpe.weight = gpt2.wpe
    h.*.ln_1.* = gpt2.gpt2_block.*.layer_norm.0.*
    h.*.attn.c_attn.* = gpt2.gpt2_block.*.gpt2_attention.transposed_linear.0.*
    h.*.attn.c_proj.* = gpt2.gpt2_block.*.gpt2_attention.transposed_linear.1.*
    h.*.ln_2.* = gpt2.gpt2_block.*.layer_norm.1.*
    h.*.mlp.c_fc.* = gpt2.gpt2_block.*.gpt2_feed_forward.transposed_linear.0.*
    h.*.mlp.c_proj.* = gpt2.gpt2_block.*.gpt2_feed_forward.transposed_linear.1.*
    ln_f.* = gpt2.layer_norm.*";

/// The sizes of a GPT-2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpt2 {
    pub(crate) vocabulary: usize,
    /// The number of learned positions.
    pub(crate) n_positions: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_layers: usize,
    /// The probability of dropout, which predictions do without.
    pub(crate) dropout: f64,
}

/// Tokens `[batch, length]` to logits of the next tokens, `[batch, length, vocabulary]`. The table
/// of tokens is that of the logits, too.
#[soybean::layer]
pub(crate) fn gpt2(tokens: Tensor, sizes: Gpt2) -> Tensor {
    let Gpt2 { vocabulary, n_positions, width, n_heads, n_layers, dropout } = sizes;
    let wte = param("wte", [vocabulary, width], normal(0.02));
    let wpe = param("wpe", [n_positions, width], normal(0.02));
    let mut h = (tokens.embedding(wte) + wpe.slice(0, 0, tokens.dim(1))).dropout(dropout);
    for _ in 0..n_layers {
        h = nn::gpt2_block(h, nn::Gpt2Block { n_heads, p: dropout });
    }
    nn::layer_norm(h).matmul(wte.transpose())
}

/// The network for the next tokens of each text, with a cache of those before and with the same
/// weights.
pub(crate) mod cached {
    use soybean::{nn, prelude::*};

    use super::Gpt2;

    /// Tokens `[batch, length]`, after `n_before [batch]` others of each text, to logits of the
    /// next tokens, `[batch, length, vocabulary]`. A text has at most `n_positions` tokens.
    #[soybean::layer]
    pub(crate) fn gpt2(tokens: Tensor, n_before: Tensor, sizes: Gpt2) -> Tensor {
        let Gpt2 { vocabulary, n_positions, width, n_heads, n_layers, .. } = sizes;
        let wte = param("wte", [vocabulary, width], normal(0.02));
        let wpe = param("wpe", [n_positions, width], normal(0.02));
        let places = n_before.to_f32().unsqueeze(1) + arange(tokens.dim(1)).to_f32();
        let mut h = tokens.embedding(wte) + places.to_i32().embedding(wpe);
        let attention = nn::cached::Attention { n_heads, capacity: n_positions };
        for _ in 0..n_layers {
            h = nn::cached::gpt2_block(h, n_before, attention);
        }
        nn::layer_norm(h).matmul(wte.transpose())
    }
}
