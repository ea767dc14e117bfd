//! A program that tests start: tiny networks, whose weights `transformers` wrote, continue texts of
//! the letters from `a` to `t`. `SOYBEAN_TEST_NETWORK` names the network.

#[path = "../../examples/networks/gpt2.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod gpt2_network;
#[path = "../../examples/networks/llama.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod llama_network;

use std::{env, process::ExitCode};

use soybean::{data::Vocabulary, generation::TextModel};

/// Reads two texts, and four tokens of each at once.
#[soybean::model(gpus = 2, mode = "inference", entries = (prefill, decode = 7))]
mod gpt2 {
    use soybean::prelude::*;

    use super::gpt2_network::{Gpt2, cached};

    const SIZES: Gpt2 =
        Gpt2 { vocabulary: 20, n_positions: 10, width: 16, n_heads: 4, n_layers: 2, dropout: 0.0 };

    pub(crate) fn prefill(tokens: Tensor<i32, 2, 4>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }

    pub(crate) fn decode(tokens: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
mod llama {
    use soybean::prelude::*;

    use super::llama_network::{Llama, cached};

    const SIZES: Llama = Llama {
        vocabulary: 20,
        width: 16,
        hidden: 24,
        n_heads: 4,
        n_key_value_heads: 2,
        n_layers: 2,
        rope_theta: 500.0,
        eps: 1e-5,
    };

    pub(crate) fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, 10)
    }
}

fn main() -> ExitCode {
    let letters = Vocabulary::of_characters("abcdefghijklmnopqrstu");
    let texts = |names| TextModel {
        capacity: 10,
        tokenizer: Some(Box::new(letters)),
        names,
        prompt: "dbe",
    };
    match env::var("SOYBEAN_TEST_NETWORK").as_deref() {
        Ok("llama") => llama::Predictor::command_line_of_texts(texts(llama_network::HUGGING_FACE)),
        _ => gpt2::Predictor::command_line_of_texts(texts(gpt2_network::HUGGING_FACE)),
    }
}
