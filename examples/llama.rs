//! Llama continues a text: `cargo run --release --example llama`.
//!
//! With `--weights FOLDER --tokenizer FILE`, it reads the files of a model of Hugging Face with the
//! numbers of TinyLlama, of 1.1 billion weights; the feature `tokenizers` reads the tokenizer. The
//! constants of `published` adapt it to another size. Without files, a small network has random
//! weights. `-- --help` lists the commands and flags.

#[path = "networks/llama.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod networks;

use std::{env, process::ExitCode};

use soybean::{data::ByteTokenizer, generation::TextModel};

/// A network of the size of TinyLlama. Source: Zhang et al. 2024.
#[soybean::model(gpus = 2, mode = "inference", entries = (prefill = 2, decode = 128))]
pub mod published {
    use soybean::prelude::*;

    use super::networks::{Llama, cached};

    /// The most tokens of a text. The published model has seen 2048.
    pub const CAPACITY: usize = 1024;
    /// Tokens that `prefill` reads at once.
    pub const BLOCK: usize = 64;
    const SIZES: Llama = Llama {
        vocabulary: 32000,
        width: 2048,
        hidden: 5632,
        n_heads: 32,
        n_key_value_heads: 4,
        n_layers: 22,
        rope_theta: 10000.0,
        eps: 1e-5,
    };

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn prefill(tokens: Tensor<i32, 1, BLOCK>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, CAPACITY)
    }

    /// Does the same for one token.
    pub fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, CAPACITY)
    }
}

/// A network that builds and runs in no time. Its tokens are bytes.
#[soybean::model(gpus = 2, mode = "inference", entries = (prefill = 2, decode = 128))]
pub mod small {
    use soybean::prelude::*;

    use super::networks::{Llama, cached};

    /// The most tokens of a text.
    pub const CAPACITY: usize = 128;
    /// Tokens that `prefill` reads at once.
    pub const BLOCK: usize = 8;
    const SIZES: Llama = Llama {
        vocabulary: 256,
        width: 64,
        hidden: 96,
        n_heads: 4,
        n_key_value_heads: 2,
        n_layers: 2,
        rope_theta: 10000.0,
        eps: 1e-5,
    };

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn prefill(tokens: Tensor<i32, 1, BLOCK>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, CAPACITY)
    }

    /// Does the same for one token.
    pub fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, SIZES, CAPACITY)
    }
}

fn main() -> ExitCode {
    let names = networks::HUGGING_FACE;
    let prompt = "It is a truth universally acknowledged, that";
    if env::args().any(|it| it.starts_with("--weights")) {
        let capacity = published::CAPACITY;
        let texts = TextModel { capacity, tokenizer: None, names, prompt };
        return published::Predictor::command_line_of_texts(texts);
    }
    let (capacity, tokenizer) = (small::CAPACITY, Some(Box::new(ByteTokenizer) as _));
    small::Predictor::command_line_of_texts(TextModel { capacity, tokenizer, names, prompt })
}
