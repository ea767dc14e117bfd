//! Llama with the names of Hugging Face. Source: Touvron et al. 2023.

use soybean::{nn, prelude::*};

/// The names of `LlamaForCausalLM`, as `soybean::weights::Mapping` reads them. Older files have
/// tables of rotary frequencies, which the model computes.
pub(crate) const HUGGING_FACE: &str = "\
    unused *.rotary_emb.inv_freq
    model.embed_tokens.weight = llama.embedding.weight
    model.layers.*.input_layernorm.weight = llama.llama_block.*.rms_norm_with.0.weight
    model.layers.*.self_attn.q_proj.weight = \
        llama.llama_block.*.grouped_query_attention.linear_without_bias.0.weight
    model.layers.*.self_attn.k_proj.weight = \
        llama.llama_block.*.grouped_query_attention.linear_without_bias.1.weight
    model.layers.*.self_attn.v_proj.weight = \
        llama.llama_block.*.grouped_query_attention.linear_without_bias.2.weight
    model.layers.*.self_attn.o_proj.weight = \
        llama.llama_block.*.grouped_query_attention.linear_without_bias.3.weight
    model.layers.*.post_attention_layernorm.weight = \
        llama.llama_block.*.rms_norm_with.1.weight
    model.layers.*.mlp.gate_proj.weight = llama.llama_block.*.swiglu.linear_without_bias.0.weight
    model.layers.*.mlp.up_proj.weight = llama.llama_block.*.swiglu.linear_without_bias.1.weight
    model.layers.*.mlp.down_proj.weight = llama.llama_block.*.swiglu.linear_without_bias.2.weight
    model.norm.weight = llama.rms_norm_with.weight
    lm_head.weight = llama.linear_without_bias.weight";

/// The numbers of Hugging Face's configuration of a Llama.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Llama {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    /// The hidden features of the feed-forward layers.
    pub(crate) hidden: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_key_value_heads: usize,
    pub(crate) n_layers: usize,
    /// The base of the rotary frequencies.
    pub(crate) rope_theta: f64,
    /// The `eps` of all norms.
    pub(crate) eps: f64,
}

/// Tokens `[batch, length]` to logits `[batch, length, vocabulary]` of the next tokens.
#[soybean::layer]
pub(crate) fn llama(tokens: Tensor, sizes: Llama) -> Tensor {
    let Llama { vocabulary, width, hidden, n_heads, n_key_value_heads, n_layers, rope_theta, eps } =
        sizes;
    let block = nn::LlamaBlock { n_heads, n_key_value_heads, hidden, rope_theta, eps };
    let mut h = nn::embedding(tokens, nn::Embedding { vocabulary, width });
    for _ in 0..n_layers {
        h = nn::llama_block(h, block);
    }
    nn::linear_without_bias(nn::rms_norm_with(h, eps), vocabulary)
}

/// The network for the next tokens of each text, with a cache of those before and with the same
/// weights.
pub(crate) mod cached {
    use soybean::{nn, prelude::*};

    use super::Llama;

    /// Tokens `[batch, length]`, after `n_before [batch]` others of each text, to logits of the
    /// next tokens, `[batch, length, vocabulary]`. A text has at most `capacity` tokens.
    #[soybean::layer]
    pub(crate) fn llama(tokens: Tensor, n_before: Tensor, sizes: Llama, capacity: usize) -> Tensor {
        let Llama {
            vocabulary, width, hidden, n_heads, n_key_value_heads, rope_theta, eps, ..
        } = sizes;
        let block = nn::cached::LlamaBlock {
            n_heads,
            n_key_value_heads,
            hidden,
            rope_theta,
            eps,
            capacity,
        };
        let mut h = nn::embedding(tokens, nn::Embedding { vocabulary, width });
        for _ in 0..sizes.n_layers {
            h = nn::cached::llama_block(h, n_before, block);
        }
        nn::linear_without_bias(nn::rms_norm_with(h, eps), vocabulary)
    }
}
