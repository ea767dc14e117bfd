//! Soybean turns a Rust function with a neural network's forward computation into a trainer for N
//! GPUs, or into a predictor.
//!
//! `#[soybean::model]` reads the function at compile time and differentiates it. It searches the
//! tilings of all tensors for those that move the fewest bytes between the declared number of GPUs.
//! It then emits Rust code with all partitions and transfers fixed. The method is SoyBean (Wang,
//! Huang, Li: "Unifying Data, Model and Hybrid Parallelism in Deep Learning via Tensor Tiling"),
//! made exact.
//!
//! ```
//! #[soybean::model(gpus = 8, optimizer = sgd(momentum = 0.9))]
//! pub mod mlp {
//!     use soybean::prelude::*;
//!     pub const BATCH: usize = 32;
//!     const HIDDEN: usize = 4 * 16;
//!
//!     fn dense(x: Tensor, out: usize) -> Tensor {
//!         let w = param("w", [out, x.dim(1)], he_normal());
//!         x.matmul(w.transpose()) + param("b", [out], zeros())
//!     }
//!
//!     pub fn forward(x: Tensor<f32, BATCH, 784>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
//!         let mut h = x;
//!         for _ in 0..3 {
//!             h = dense(h, HIDDEN).relu();
//!         }
//!         let logits = dense(h, 10);
//!         (logits.cross_entropy(y), logits)
//!     }
//! }
//!
//! let mut trainer = mlp::Trainer::new(soybean::Config::default())?;
//! let (x, y) = (vec![0.5; mlp::BATCH * 784], vec![3; mlp::BATCH]);
//! let first = trainer.step(&mlp::Batch { x: &x, y: &y })?;
//! let second = trainer.step(&mlp::Batch { x: &x, y: &y })?;
//! assert!(second < first);
//! assert_eq!(trainer.moved_bytes(), mlp::Trainer::PLAN.bytes_total);
//! # Ok::<(), soybean::Error>(())
//! ```
//!
//! Tensors are the function's arguments, `Tensor<dtype, d0, d1, ..>`. Weights are
//! [`param`](prelude::param)`(name, shape, init)`. The function returns a scalar loss, or a tuple
//! that begins with it. It remains in the program as ordinary Rust over the [`eager`] tensor, whose
//! page lists the operators.
//!
//! The model's module gets a `Trainer` (see [`Trainer`]), a `Batch` with a slice for each argument,
//! and a `Network`. [`Trainer::command_line`] turns it into a program with the commands `train`,
//! `plan`, `check`, `bench` and `devices`.
//!
//! [`Trainer::predict`] returns the outputs other than the loss, for inputs without labels. A model
//! with `mode = "inference"` has only the forward computation: its function returns a tensor or a
//! tuple of tensors. Its plan moves the fewest bytes in a prediction and has no gradients, and its
//! module has a `Predictor` (see [`Predictor`]) instead of a `Trainer`. It loads the weights of a
//! trainer whose model calls the same functions, on any number of GPUs:
//!
//! ```
//! mod layers {
//!     use soybean::{nn::linear, prelude::*};
//!
//!     #[soybean::layer]
//!     pub(crate) fn classifier(x: Tensor) -> Tensor {
//!         linear(linear(x, 64).relu(), 10)
//!     }
//! }
//!
//! #[soybean::model(gpus = 4, optimizer = adam())]
//! mod learning {
//!     use super::layers::classifier;
//!     use soybean::prelude::*;
//!
//!     pub(crate) fn forward(x: Tensor<f32, 32, 784>, y: Tensor<i32, 32>) -> (Tensor, Tensor) {
//!         let logits = classifier(x);
//!         (logits.cross_entropy(y), logits)
//!     }
//! }
//!
//! #[soybean::model(gpus = 2, mode = "inference")]
//! mod serving {
//!     use super::layers::classifier;
//!     use soybean::prelude::*;
//!
//!     pub(crate) fn forward(x: Tensor<f32, 8, 784>) -> (Tensor, Tensor) {
//!         let logits = classifier(x);
//!         (logits.argmax(1), logits.softmax(1))
//!     }
//! }
//!
//! fn main() -> Result<(), soybean::Error> {
//!     let mut trainer = learning::Trainer::new(soybean::Config::default())?;
//!     // .. steps ..
//!     let mut predictor = serving::Predictor::new(soybean::Config::default())?;
//!     predictor.set_parameters(&trainer.parameters()?)?;
//!     let images = [0.5; 3 * 784];
//!     let outputs = predictor.predict(&serving::Batch { x: &images })?;
//!     assert_eq!((&outputs[0].shape[..], &outputs[1].shape[..]), (&[3][..], &[3, 10][..]));
//!     assert_eq!(predictor.moved_bytes(), serving::Predictor::PLAN.bytes_total);
//!     Ok(())
//! }
//! ```
//!
//! [`nn`] has layers: linear, convolution, norms, residual blocks, attention. Functions that models
//! of several modules or crates share are marked with [`macro@layer`]:
//!
//! ```
//! mod nn {
//!     use soybean::prelude::*;
//!
//!     #[soybean::constant]
//!     const SLOPE: f64 = 0.1;
//!
//!     /// A dense layer.
//!     #[soybean::layer]
//!     pub(crate) fn dense(x: Tensor, units: usize) -> Tensor {
//!         let w = param("w", [units, x.dim(1)], he_normal());
//!         (x.matmul(w.transpose()) + param("b", [units], zeros())).leaky_relu(SLOPE)
//!     }
//! }
//!
//! #[soybean::model(gpus = 2)]
//! mod mlp {
//!     use super::nn::dense;
//!     use soybean::prelude::*;
//!
//!     pub(crate) fn forward(x: Tensor<f32, 16, 64>, y: Tensor<i32, 16>) -> Tensor {
//!         dense(dense(x, 32), 10).cross_entropy(y)
//!     }
//! }
//!
//! fn main() -> Result<(), soybean::Error> {
//!     let mut trainer = mlp::Trainer::new(soybean::Config::default())?;
//!     trainer.step(&mlp::Batch { x: &[0.5; 16 * 64], y: &[3; 16] })?;
//!     Ok(())
//! }
//! ```

extern crate self as soybean;

#[cfg(doctest)]
mod book;
mod command_line;
pub mod eager;
mod network;
pub mod nn;
mod predictor;
mod run;
mod trainer;

pub use soybean_explain as explain;
#[doc(hidden)]
pub use soybean_macros::__continue;
pub use soybean_macros::{constant, layer, model};
pub use soybean_plan as plan;
pub use soybean_runtime as runtime;
pub use soybean_runtime::{
    Array, Config, Counters, Device, Error, Evaluation, Process, Trace, checkpoint, data, weights,
};

pub use eager::Tensor;
pub use network::{Batch, Network, Outputs};
pub use predictor::Predictor;
pub use run::{
    Curve, DataOptions, End, EvaluationRecord, Event, Flow, HeldOutBatch, Metric, Resume, Schedule,
    Split, Start, StepRecord, Summary, TrainConfig,
};
pub use trainer::Trainer;

/// The items that a model's function uses.
pub mod prelude {
    pub use crate::eager::{
        Init, Tensor, buffer, concat, constant, he_normal, he_uniform, normal, ones, param, stack,
        trunc_normal, uniform, xavier_normal, xavier_uniform, zeros,
    };
}
