//! Training on eight devices and predicting on others: `cargo run --release --example predict`.
//!
//! A perceptron learns handwritten digits (source: `examples/data/README.md`). Two inference models
//! then load its weights, with plans for the forward pass alone: one takes single images on four
//! devices, the other a dozen images on six. All three classify the held-out images. `-- plan`
//! shows the plan of the first, `-- --help` lists the commands.

#[path = "data/digits.rs"]
mod data;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use soybean::{
    Array, Config, DataOptions, TrainConfig,
    data::{DataLoader, Dataset, LoaderOptions},
};

/// The shared layers. Weights have the same names wherever the same functions are called.
mod layers {
    use soybean::{nn::linear, prelude::*};

    /// The logits of images.
    #[soybean::layer]
    pub(crate) fn perceptron(x: Tensor) -> Tensor {
        let mut h = x;
        for _ in 0..2 {
            h = linear(h, 128).relu();
        }
        linear(h, 10)
    }
}

/// The model that is trained.
#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
pub mod digits {
    use super::layers::perceptron;
    use soybean::prelude::*;

    /// Images in a batch.
    pub const BATCH: usize = 32;

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, 64>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = perceptron(x);
        (logits.cross_entropy(y), logits)
    }
}

/// Single images: the layers are split over the devices.
#[soybean::model(gpus = 4, mode = "inference")]
pub mod one {
    use super::layers::perceptron;
    use soybean::prelude::*;

    /// Images in a prediction.
    pub const BATCH: usize = 1;

    /// Returns the logits.
    pub fn forward(x: Tensor<f32, BATCH, 64>) -> Tensor {
        perceptron(x)
    }
}

/// A dozen images: each device has some of them.
#[soybean::model(gpus = 6, mode = "inference")]
pub mod dozen {
    use super::layers::perceptron;
    use soybean::prelude::*;

    /// Images in a prediction.
    pub const BATCH: usize = 12;

    /// Returns the logits.
    pub fn forward(x: Tensor<f32, BATCH, 64>) -> Tensor {
        perceptron(x)
    }
}

const N_EPOCHS: u64 = 12;

fn main() -> ExitCode {
    if env::args_os().len() > 1 {
        return one::Predictor::command_line();
    }
    match train_and_predict(&mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed too, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train_and_predict(output: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let split = data::load(&DataOptions::default())?;
    let config = TrainConfig::new(N_EPOCHS, 0.05);
    let mut trainer = digits::Trainer::new(config.trainer.clone())?;
    trainer.fit(&config, &split)?;
    let weights = trainer.parameters()?;
    let mut one = one::Predictor::new(Config::default())?;
    one.set_parameters(&weights)?;
    let mut dozen = dozen::Predictor::new(Config::default())?;
    dozen.set_parameters(&weights)?;

    let held_out = &split.held_out;
    // All images in one call: each model splits them into batches of its own size. The trainer
    // reads no labels.
    let of_trainer =
        accuracy(held_out, |x| trainer.predict(&digits::Batch { x, ..Default::default() }))?;
    let of_one = accuracy(held_out, |x| one.predict(&one::Batch { x }))?;
    let of_dozen = accuracy(held_out, |x| dozen.predict(&dozen::Batch { x }))?;
    writeln!(output, "accuracy {of_trainer:.4} of the trainer on 8 devices")?;
    for (plan, accuracy, n_rows) in [
        (one::Predictor::PLAN, of_one, one::BATCH),
        (dozen::Predictor::PLAN, of_dozen, dozen::BATCH),
    ] {
        let (n_gpus, bytes) = (plan.n_gpus, plan.bytes_total);
        writeln!(
            output,
            "accuracy {accuracy:.4} of a predictor on {n_gpus} devices, {bytes} bytes for a prediction of {n_rows}"
        )?;
    }
    Ok(())
}

/// Returns the fraction of correctly classified images.
fn accuracy(
    dataset: &Arc<dyn Dataset>,
    mut predict: impl FnMut(&[f32]) -> Result<Vec<Array>, soybean::Error>,
) -> Result<f64, soybean::Error> {
    let options = LoaderOptions::evaluation(dataset.n_rows());
    let mut loader = DataLoader::new(Arc::clone(dataset), options)?;
    loader.start(0, 0);
    let mut n_right = 0;
    for batch in loader {
        let batch = batch?;
        let logits = predict(batch.f32s(0))?;
        let rows = logits[0].data.chunks(10).zip(batch.i32s(1));
        n_right += rows.filter(|(row, digit)| usize::try_from(**digit) == Ok(largest(row))).count();
    }
    Ok(n_right as f64 / dataset.n_rows() as f64)
}

fn largest(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
}
