//! ResNet-20 on eight devices: `cargo run --release --example resnet`.
//!
//! It learns synthetic images of 32 x 32 pixels. Each shows one of ten patterns at a random
//! position, in a random color, with noise. Batch norm uses the statistics of the whole batch,
//! across devices; evaluations use the running statistics. `-- plan` shows the plan, `-- --help`
//! lists the flags.

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

    use super::networks::{ResNet, resnet20};

    const BATCH: usize = 32;

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, 3, 32, 32>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = resnet20(x, ResNet { width: 8, n_classes: 10 });
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    resnet::Trainer::command_line_with(TrainConfig::new(6, 0.05), data::load)
}
