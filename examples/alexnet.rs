//! AlexNet on eight devices, with synthetic images. `cargo run --release --example alexnet -- plan`
//! shows its plan, `-- bench` measures it.

#[path = "networks/alexnet.rs"]
mod networks;

use std::{convert::Infallible, process::ExitCode};

use soybean::{Split, TrainConfig};

/// AlexNet with the paper's sizes.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
pub mod alexnet {
    use soybean::prelude::*;

    use super::networks::{AlexNet, alexnet};

    /// Images in a batch.
    pub const BATCH: usize = 256;

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, 3, 224, 224>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = alexnet(x, AlexNet { width: 64, hidden: 4096, n_classes: 1000 });
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    alexnet::Trainer::command_line_with(TrainConfig::new(1, 0.01), |options| {
        let n_images = alexnet::BATCH;
        Ok::<_, Infallible>(Split::random::<alexnet::Network>(n_images, n_images, options.seed))
    })
}
