//! The networks that are measured, compiled by the library.

#[path = "../../../examples/networks/gpt2.rs"]
#[expect(dead_code, reason = "only the network with a cache is measured")]
mod gpt2_network;
#[path = "../../../examples/networks/llama.rs"]
#[expect(dead_code, reason = "only the network with a cache is measured")]
mod llama_network;

/// Tokens of the prompt.
pub(crate) const N_PROMPT: i32 = 128;
/// Tokens that are added.
pub(crate) const N_NEW: usize = 128;
/// Tokens that the caches hold.
pub(crate) const CAPACITY: usize = 256;

/// The smallest published GPT-2, on one device.
#[soybean::model(gpus = 1, mode = "inference", entries = (prefill = 1, decode = 128))]
pub(crate) mod gpt2 {
    use soybean::prelude::*;

    use super::gpt2_network::{Gpt2, cached};

    const SIZES: Gpt2 = Gpt2 {
        vocabulary: 50257,
        n_positions: 256,
        width: 768,
        n_heads: 12,
        n_layers: 12,
        dropout: 0.0,
    };

    pub(crate) fn prefill(tokens: Tensor<i32, 1, 128>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }

    pub(crate) fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }
}

/// Eight blocks of Llama, 1024 wide, with 16 heads that share 4 heads of keys and values.
#[soybean::model(gpus = 1, mode = "inference", entries = (prefill = 1, decode = 128))]
pub(crate) mod llama {
    use soybean::prelude::*;

    use super::llama_network::{Llama, cached};

    const SIZES: Llama = Llama {
        vocabulary: 32000,
        width: 1024,
        hidden: 2816,
        n_heads: 16,
        n_key_value_heads: 4,
        n_layers: 8,
        rope_theta: 10000.0,
        eps: 1e-5,
    };

    pub(crate) fn prefill(tokens: Tensor<i32, 1, 128>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, 256)
    }

    pub(crate) fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, 256)
    }
}
