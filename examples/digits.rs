//! Handwritten digits on eight devices: `cargo run --release --example digits`.
//!
//! A perceptron learns 1,797 images of 8 x 8 pixels (source: `examples/data/README.md`), a fifth of
//! them held out. The last line is the accuracy on the held-out images. `-- plan` shows the plan,
//! `-- --help` lists the flags.

#[path = "data/digits.rs"]
mod data;

use std::process::ExitCode;

use soybean::TrainConfig;

/// A perceptron with two hidden layers.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
pub mod digits {
    use soybean::prelude::*;

    const BATCH: usize = 32;
    const PIXELS: usize = 64;
    const HIDDEN: usize = 128;
    const CLASSES: usize = 10;

    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [out, x.dim(1)], he_normal()).transpose()) + param("b", [out], zeros())
    }

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, PIXELS>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..2 {
            h = dense(h, HIDDEN).relu();
        }
        let logits = dense(h, CLASSES);
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    digits::Trainer::command_line_with(TrainConfig::new(30, 0.05), data::load)
}
