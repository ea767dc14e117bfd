//! VGG-16 on eight devices, with synthetic images. `cargo run --release --example vgg16 -- plan`
//! shows its plan, `-- bench` measures it.

#[path = "networks/vgg16.rs"]
mod networks;

use std::{convert::Infallible, process::ExitCode};

use soybean::{Split, TrainConfig};

/// VGG-16 with the paper's sizes.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
pub mod vgg16 {
    use soybean::prelude::*;

    use super::networks::{Vgg16, vgg16};

    /// Images in a batch.
    pub const BATCH: usize = 64;

    /// The cross-entropy, and the logits for predictions.
    pub fn forward(x: Tensor<f32, BATCH, 3, 224, 224>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = vgg16(x, Vgg16 { width: 64, hidden: 4096, n_classes: 1000 });
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    vgg16::Trainer::command_line_with(TrainConfig::new(1, 0.01), |options| {
        let n_images = vgg16::BATCH;
        Ok::<_, Infallible>(Split::random::<vgg16::Network>(n_images, n_images, options.seed))
    })
}
