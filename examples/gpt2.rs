//! GPT-2 continues a text: `cargo run --release --example gpt2`.
//!
//! With `--weights FOLDER --tokenizer FILE`, it reads the files of the smallest published model of
//! Hugging Face, of 124 million weights; the feature `tokenizers` reads the tokenizer. Without them
//! a small network has random weights. `-- --help` lists the commands and flags.

#[path = "networks/gpt2.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod networks;

use std::{env, process::ExitCode};

use soybean::{data::ByteTokenizer, generation::TextModel};

/// The smallest published model.
#[soybean::model(gpus = 2, mode = "inference", entries = (prefill = 2, decode = 128))]
pub mod published {
    use soybean::prelude::*;

    use super::networks::{Gpt2, cached};

    /// The most tokens of a text.
    pub const N_POSITIONS: usize = 1024;
    /// Tokens that `prefill` reads at once.
    pub const BLOCK: usize = 64;
    const SIZES: Gpt2 = Gpt2 {
        vocabulary: 50257,
        n_positions: N_POSITIONS,
        width: 768,
        n_heads: 12,
        n_layers: 12,
        dropout: 0.0,
    };

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn prefill(tokens: Tensor<i32, 1, BLOCK>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }

    /// Does the same for one token.
    pub fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }
}

/// A network that builds and runs in no time. Its tokens are bytes.
#[soybean::model(gpus = 2, mode = "inference", entries = (prefill = 2, decode = 128))]
pub mod small {
    use soybean::prelude::*;

    use super::networks::{Gpt2, cached};

    /// The most tokens of a text.
    pub const N_POSITIONS: usize = 128;
    /// Tokens that `prefill` reads at once.
    pub const BLOCK: usize = 8;
    const SIZES: Gpt2 = Gpt2 {
        vocabulary: 256,
        n_positions: N_POSITIONS,
        width: 64,
        n_heads: 4,
        n_layers: 2,
        dropout: 0.0,
    };

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn prefill(tokens: Tensor<i32, 1, BLOCK>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }

    /// Does the same for one token.
    pub fn decode(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, SIZES)
    }
}

fn main() -> ExitCode {
    let names = networks::HUGGING_FACE;
    let prompt = "It is a truth universally acknowledged, that";
    if env::args().any(|it| it.starts_with("--weights")) {
        let capacity = published::N_POSITIONS;
        let texts = TextModel { capacity, tokenizer: None, names, prompt };
        return published::Predictor::command_line_of_texts(texts);
    }
    let (capacity, tokenizer) = (small::N_POSITIONS, Some(Box::new(ByteTokenizer) as _));
    small::Predictor::command_line_of_texts(TextModel { capacity, tokenizer, names, prompt })
}
