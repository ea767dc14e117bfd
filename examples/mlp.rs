//! The four-layer perceptron of the SoyBean paper, on synthetic data: `cargo run --release
//! --example mlp`.
//!
//! The paper trains it with `WIDTH` 8192. The plan depends on the ratio of the batch to the widths,
//! not on the sizes. `cargo run --release --example mlp -- plan` shows it.

use std::{convert::Infallible, process::ExitCode};

use soybean::{Split, TrainConfig};

/// Four layers of one width.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
pub mod mlp {
    use soybean::prelude::*;

    /// Samples in a batch; 512 in the paper.
    pub const BATCH: usize = 64;
    /// Units of every layer; 8192 in the paper.
    const WIDTH: usize = 256;
    /// Layers; 4 in the paper.
    const N_LAYERS: usize = 4;

    fn dense(x: Tensor) -> Tensor {
        x.matmul(param("w", [WIDTH, x.dim(1)], he_normal()).transpose())
            + param("b", [WIDTH], zeros())
    }

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, WIDTH>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..N_LAYERS - 1 {
            h = dense(h).relu();
        }
        let logits = dense(h);
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    mlp::Trainer::command_line_with(TrainConfig::new(5, 0.05), |options| {
        Ok::<_, Infallible>(Split::random::<mlp::Network>(
            400 * mlp::BATCH,
            10 * mlp::BATCH,
            options.seed,
        ))
    })
}
