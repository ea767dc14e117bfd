//! The convolutional networks of the SoyBean paper on eight devices, in both settings: many filters
//! on small images, and fewer filters on large images.
//!
//! `cargo run --release --example cnn5` shows both plans; `-- bench` measures the second with
//! synthetic images.

#[path = "networks/cnn5.rs"]
mod networks;

use std::{
    convert::Infallible,
    env,
    io::{self, Write},
    process::ExitCode,
};

use soybean::{Network, Split, TrainConfig};

/// 2048 filters on images of 6 x 6 pixels: parameters are larger than activations.
#[soybean::model(gpus = 8)]
pub mod wide {
    use soybean::prelude::*;

    use super::networks::{Cnn5, cnn5};

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<f32, 256, 2048, 6, 6>, y: Tensor<i32, 256>) -> Tensor {
        cnn5(x, Cnn5 { width: 2048, n_classes: 16 }).cross_entropy(y)
    }
}

/// 512 filters on images of 24 x 24 pixels: activations are larger than parameters.
#[soybean::model(gpus = 8)]
pub mod large {
    use soybean::prelude::*;

    use super::networks::{Cnn5, cnn5};

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<f32, 256, 512, 24, 24>, y: Tensor<i32, 256>) -> Tensor {
        cnn5(x, Cnn5 { width: 512, n_classes: 16 }).cross_entropy(y)
    }
}

fn main() -> ExitCode {
    if env::args_os().len() > 1 {
        return large::Trainer::command_line_with(TrainConfig::default(), |options| {
            Ok::<_, Infallible>(Split::random::<large::Network>(256, 256, options.seed))
        });
    }
    let plans = [wide::Network::PLAN, large::Network::PLAN];
    let written = plans.iter().try_for_each(|it| writeln!(io::stdout(), "{}", it.text));
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
