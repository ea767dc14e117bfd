//! ResNet-20 on eight devices: `cargo run --release --example resnet`.
//!
//! It learns synthetic images of 32 x 32 pixels, in each of which one of ten patterns stands somewhere, in some colour, under noise. Batch norm uses the statistics of the whole
//! batch, wherever its parts are; evaluations use the running ones. `-- plan` shows the plan, `-- --help` the flags.

#[path = "data/patterns.rs"]
mod data;
#[path = "networks/resnet.rs"]
#[expect(dead_code, reason = "the other network is for the tests")]
mod networks;

use std::process::ExitCode;

use soybean::TrainConfig;

/// ResNet-20, half as wide as the paper's.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9, weight_decay = 0.0001))]
pub mod resnet {
    use soybean::prelude::*;

    use super::networks;

    const BATCH: usize = 32;

    /// The cross-entropy, and the logits for predictions.
    pub fn forward(x: Tensor<f32, BATCH, 3, 32, 32>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = networks::resnet20(x, 8, 10);
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    resnet::Trainer::command_line_with(TrainConfig::new(6, 0.05), data::load)
}
