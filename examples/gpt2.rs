//! GPT-2 continues a text: `cargo run --release --example gpt2`.
//!
//! With `--weights FOLDER --tokenizer FILE`, it reads the files of the smallest published model of
//! Hugging Face, of 124 million weights; the feature `tokenizers` reads the tokenizer. Without them
//! a small network has random weights. `-- --help` lists the flags.

#[path = "networks/gpt2.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod networks;
#[path = "text/program.rs"]
mod program;

use std::process::ExitCode;

use program::Decoder;

/// The smallest published model.
#[soybean::model(gpus = 2, mode = "inference")]
pub mod published {
    use soybean::prelude::*;

    use super::networks::cached;

    /// The number of different tokens.
    pub const VOCABULARY: usize = 50257;
    /// The most tokens of a text.
    pub const N_POSITIONS: usize = 1024;

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, VOCABULARY, N_POSITIONS, 768, 12, 12)
    }
}

/// A network that builds and runs in no time. Its tokens are bytes.
#[soybean::model(gpus = 2, mode = "inference")]
pub mod small {
    use soybean::prelude::*;

    use super::networks::cached;

    /// The number of different tokens.
    pub const VOCABULARY: usize = 256;
    /// The most tokens of a text.
    pub const N_POSITIONS: usize = 128;

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::gpt2(tokens, n_before, VOCABULARY, N_POSITIONS, 64, 4, 2)
    }
}

fn main() -> ExitCode {
    let decoder =
        |vocabulary, capacity| Decoder { names: networks::HUGGING_FACE, vocabulary, capacity };
    program::run::<published::Network, small::Network>(
        decoder(published::VOCABULARY, published::N_POSITIONS),
        decoder(small::VOCABULARY, small::N_POSITIONS),
    )
}
