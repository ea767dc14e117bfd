//! Llama continues a text: `cargo run --release --example llama`.
//!
//! With `--weights FOLDER --tokenizer FILE`, it reads the files of a model of Hugging Face with the
//! numbers of TinyLlama, of 1.1 billion weights; the feature `tokenizers` reads the tokenizer. The
//! constants of `published` adapt it to another size. Without files, a small network has random
//! weights. `-- --help` lists the flags.

#[path = "networks/llama.rs"]
#[expect(dead_code, reason = "the network without a cache is for training")]
mod networks;
#[path = "text/program.rs"]
mod program;

use std::process::ExitCode;

use program::Decoder;

/// A network of the size of TinyLlama. Source: Zhang et al. 2024.
#[soybean::model(gpus = 2, mode = "inference")]
pub mod published {
    use soybean::prelude::*;

    use super::networks::cached;

    /// The number of different tokens.
    pub const VOCABULARY: usize = 32000;
    /// The most tokens of a text. The published model has seen 2048.
    pub const CAPACITY: usize = 1024;

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, VOCABULARY, 2048, 5632, 32, 4, 22, 10000.0, 1e-5, CAPACITY)
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
    pub const CAPACITY: usize = 128;

    /// Returns the logits of the tokens after `tokens`, which come after `n_before` others.
    pub fn forward(tokens: Tensor<i32, 1, 1>, n_before: Tensor<i32, 1>) -> Tensor {
        cached::llama(tokens, n_before, VOCABULARY, 64, 96, 4, 2, 2, 10000.0, 1e-5, CAPACITY)
    }
}

fn main() -> ExitCode {
    let decoder =
        |vocabulary, capacity| Decoder { names: networks::HUGGING_FACE, vocabulary, capacity };
    program::run::<published::Network, small::Network>(
        decoder(published::VOCABULARY, published::CAPACITY),
        decoder(small::VOCABULARY, small::CAPACITY),
    )
}
