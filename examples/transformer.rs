//! A transformer of the size of GPT-2 on eight devices, with synthetic tokens. `cargo run --release
//! --example transformer -- plan` shows its plan, `-- bench` measures it.

#[path = "networks/gpt.rs"]
mod networks;

use std::{convert::Infallible, process::ExitCode};

use soybean::{Split, TrainConfig};

/// GPT-2 small, with its sizes as constants.
#[soybean::model(gpus = 8, optimizer = adamw())]
pub mod transformer {
    use soybean::prelude::*;

    use super::networks::{Gpt, gpt};

    /// Texts in a batch.
    pub const BATCH: usize = 8;
    const LENGTH: usize = 1024;
    const SIZES: Gpt =
        Gpt { vocabulary: 50_304, width: 768, n_heads: 12, n_layers: 12, dropout: 0.1 };

    /// Returns the cross-entropy of the next tokens.
    pub fn forward(tokens: Tensor<i32, BATCH, LENGTH>, next: Tensor<i32, BATCH, LENGTH>) -> Tensor {
        gpt(tokens, SIZES).cross_entropy(next)
    }
}

fn main() -> ExitCode {
    let defaults = TrainConfig::new(1, 0.0003);
    transformer::Trainer::command_line_with(defaults, |options| {
        let n_texts = transformer::BATCH;
        Ok::<_, Infallible>(Split::random::<transformer::Network>(n_texts, n_texts, options.seed))
    })
}
