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

    use super::gpt2_network::cached;

    pub(crate) fn prefill(tokens: Tensor<i32, 2, 4>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt2(tokens, n_before, 20, 10, 16, 4, 2)
    }

    pub(crate) fn decode(tokens: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt2(tokens, n_before, 20, 10, 16, 4, 2)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
mod llama {
    use soybean::prelude::*;

    use super::llama_network::cached;

    pub(crate) fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, 20, 16, 24, 4, 2, 2, 500.0, 1e-5, 10)
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
