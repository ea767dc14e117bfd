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

/// Tokens `[batch, length]` to logits of the next tokens, `[batch, length, vocabulary]`. The table
/// of tokens is that of the logits, too. The number of learned positions is `n_positions`; `p` is
/// the probability of dropout.
#[soybean::layer]
pub(crate) fn gpt2(
    tokens: Tensor,
    vocabulary: usize,
    n_positions: usize,
    width: usize,
    n_heads: usize,
    n_layers: usize,
    p: f64,
) -> Tensor {
    let wte = param("wte", [vocabulary, width], normal(0.02));
    let wpe = param("wpe", [n_positions, width], normal(0.02));
    let mut h = (tokens.embedding(wte) + wpe.slice(0, 0, tokens.dim(1))).dropout(p);
    for _ in 0..n_layers {
        h = nn::gpt2_block(h, n_heads, p);
    }
    nn::layer_norm(h).matmul(wte.transpose())
}

/// The network for the next tokens of each text, with a cache of those before and with the same
/// weights.
pub(crate) mod cached {
    use soybean::{nn, prelude::*};

    /// Tokens `[batch, length]`, after `n_before [batch]` others of each text, to logits of the
    /// next tokens, `[batch, length, vocabulary]`. A text has at most `n_positions` tokens.
    #[soybean::layer]
    pub(crate) fn gpt2(
        tokens: Tensor,
        n_before: Tensor,
        vocabulary: usize,
        n_positions: usize,
        width: usize,
        n_heads: usize,
        n_layers: usize,
    ) -> Tensor {
        let wte = param("wte", [vocabulary, width], normal(0.02));
        let wpe = param("wpe", [n_positions, width], normal(0.02));
        let places = n_before.to_f32().unsqueeze(1) + arange(tokens.dim(1)).to_f32();
        let mut h = tokens.embedding(wte) + places.to_i32().embedding(wpe);
        for _ in 0..n_layers {
            h = nn::cached::gpt2_block(h, n_before, n_heads, n_positions);
        }
        nn::layer_norm(h).matmul(wte.transpose())
    }
}
