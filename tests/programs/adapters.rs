//! A program that tests start: a tiny GPT-2 with trained adapters beside frozen weights.

#[path = "../../examples/networks/gpt2_lora.rs"]
mod network;

use std::process::ExitCode;

use soybean::{Error, Split, TrainConfig};

#[soybean::model(
    gpus = 8,
    optimizer = adam(),
    freeze = ["*.wte", "*.wpe", "*.layer_norm.*", "*.transposed_linear.*"]
)]
mod tuned {
    use soybean::{nn::Lora, prelude::*};

    use super::network::{Gpt2, gpt2};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 7>, next: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let sizes = Gpt2 { vocabulary: 20, n_positions: 10, width: 16, n_heads: 4, n_layers: 2 };
        let logits = gpt2(tokens, sizes, Lora { rank: 2, scale: 4.0 });
        (logits.cross_entropy(next), logits)
    }
}

fn main() -> ExitCode {
    tuned::Trainer::command_line_with(TrainConfig::new(1, 0.02), |options| {
        Ok::<_, Error>(Split::random::<tuned::Network>(32, 8, options.seed))
    })
}
