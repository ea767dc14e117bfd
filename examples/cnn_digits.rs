//! Handwritten digits with a convolutional network on eight devices: `cargo run --release --example
//! cnn_digits`.
//!
//! The data are the 1,797 images of 8 x 8 pixels of the example `digits`, a fifth of them held out.
//! The last line is the accuracy on the held-out images. `-- plan` shows the plan, `-- --help`
//! lists the flags.

#[path = "data/digits.rs"]
mod data;

use std::process::ExitCode;

use soybean::TrainConfig;

/// Three convolutions, one pooling, two dense layers.
#[soybean::model(gpus = 8, optimizer = adam())]
pub mod cnn_digits {
    use soybean::prelude::*;

    const BATCH: usize = 32;
    const SIDE: usize = 8;
    const CLASSES: usize = 10;

    /// A convolution of 3 x 3 pixels that keeps the size of the image.
    fn conv(x: Tensor, out: usize) -> Tensor {
        let w = param("w", [out, x.dim(1), 3, 3], he_normal());
        x.conv2d(w, 1, 1, 1, 1) + param("b", [out, 1, 1], zeros())
    }

    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [out, x.dim(1)], he_normal()).transpose()) + param("b", [out], zeros())
    }

    /// Returns the cross-entropy and the logits.
    pub fn forward(
        x: Tensor<f32, BATCH, { SIDE * SIDE }>,
        y: Tensor<i32, BATCH>,
    ) -> (Tensor, Tensor) {
        let mut h = x.reshape([BATCH, 1, SIDE, SIDE]);
        for channels in [16, 32] {
            h = conv(h, channels).relu();
        }
        h = conv(h.max_pool2d(2, 2, 0), 64).relu();
        let logits = dense(dense(h.flatten(), 128).relu(), CLASSES);
        (logits.cross_entropy(y), logits)
    }
}

fn main() -> ExitCode {
    cnn_digits::Trainer::command_line_with(TrainConfig::new(20, 0.001), data::load)
}
