//! Soybean turns a Rust function with a neural network's forward computation into a trainer for N
//! GPUs, or into a predictor.
//!
//! [`#[soybean::model]`](macro@model) reads the function at compile time and differentiates it. It
//! searches the tilings of all tensors for those that move the fewest bytes between the declared
//! number of GPUs. It then emits Rust code with all partitions and transfers fixed. The method is
//! SoyBean (Wang, Huang, Li: "Unifying Data, Model and Hybrid Parallelism in Deep Learning via
//! Tensor Tiling"), made exact.
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
mod calibration;
mod command_line;
pub mod generation;
mod network;
pub mod nn;
mod non_finite;
pub mod operator;
mod oracle;
mod predictor;
mod run;
mod scope;
mod trainer;

#[doc(inline)]
pub use soybean_eager as eager;
pub use soybean_explain as explain;
/// Compiles the forward function of a model into a trainer for N GPUs, or a predictor.
///
/// # Examples
///
/// A function is a whole model:
///
/// ```
/// use soybean::prelude::*;
///
/// #[soybean::model(gpus = 2, optimizer = sgd(momentum = 0.9))]
/// fn classifier(x: Tensor<f32, 16, 64>, y: Tensor<i32, 16>) -> (Tensor, Tensor) {
///     // The trainer initializes and updates the weight. Its dims are `[outputs, inputs]`.
///     let w = param("w", [10, x.dim(1)], zeros());
///     let logits = x.matmul(w.transpose());
///     // The loss is first. Evaluations and predictions return the other results.
///     (logits.cross_entropy(y), logits)
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     // Without GPUs, their work is done by threads of the CPU.
///     let mut trainer = classifier::Trainer::new(soybean::Config::default())?;
///     // A slice for each argument, row by row.
///     let batch = classifier::Batch { x: &[0.5; 16 * 64], y: &[3; 16] };
///     let first = trainer.step(&batch)?;
///     // With weights of 0, the ten classes are equally probable.
///     assert!((first - 10.0_f32.ln()).abs() < 1e-5);
///     assert!(trainer.step(&batch)? < first);
///     Ok(())
/// }
/// ```
///
/// A module holds consts and functions beside the function of the model, `forward`. This one uses
/// layers of [`nn`]:
///
/// ```
/// #[soybean::model(gpus = 4, optimizer = adamw(weight_decay = 0.1))]
/// mod digits {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) const BATCH: usize = 16;
///     const WIDTHS: [usize; 2] = [64, 32];
///     const IS_NORMALIZED: bool = true;
///
///     fn block(x: Tensor, width: usize) -> Tensor {
///         let h = nn::linear(x, width).relu();
///         // The condition is known when the model is built.
///         if IS_NORMALIZED { nn::layer_norm(h) } else { h }
///     }
///
///     pub(crate) fn forward(x: Tensor<f32, BATCH, 8, 8>, y: Tensor<i32, BATCH>) -> Tensor {
///         let mut h = x.flatten();
///         // The loop is unrolled, and each iteration has weights of its own.
///         for width in WIDTHS {
///             h = block(h, width);
///         }
///         nn::linear(h, 10).cross_entropy(y)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = digits::Trainer::new(soybean::Config::default())?;
///     trainer.step(&digits::Batch { x: &[0.5; digits::BATCH * 64], y: &[3; digits::BATCH] })?;
///     let parameters = trainer.parameters()?;
///     let (name, weight) = &parameters[0];
///     assert_eq!((&name[..], &weight.shape[..]), ("block.0.linear.weight", &[64, 64][..]));
///     // The bytes that the step moved between the GPUs are those of the plan.
///     assert_eq!(trainer.moved_bytes(), digits::Trainer::PLAN.bytes_total);
///     Ok(())
/// }
/// ```
///
/// Mode inference compiles the forward computation alone, for predictions:
///
/// ```
/// #[soybean::model(gpus = 2, mode = "inference")]
/// mod serving {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(x: Tensor<f32, 8, 64>) -> (Tensor, Tensor) {
///         let probabilities = nn::linear(x, 10).softmax(1);
///         (probabilities.argmax(1), probabilities)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     // `load_weights` reads weights from a file, and `set_parameters` takes those of a trainer.
///     let mut predictor = serving::Predictor::new(soybean::Config::default())?;
///     // Any number of rows.
///     let outputs = predictor.predict(&serving::Batch { x: &[0.5; 3 * 64] })?;
///     let [classes, probabilities] = &outputs[..] else { panic!("there are two outputs") };
///     assert_eq!((&classes.shape[..], &probabilities.shape[..]), (&[3][..], &[3, 10][..]));
///     Ok(())
/// }
/// ```
///
/// A mistake is a compile error, here at `w`, whose first dim is not 784:
///
/// ```compile_fail
/// use soybean::prelude::*;
///
/// #[soybean::model(gpus = 2)]
/// fn classifier(x: Tensor<f32, 64, 784>, y: Tensor<i32, 64>) -> Tensor {
///     let w = param("w", [785, 10], he_normal());
///     x.matmul(w).cross_entropy(y)
/// }
/// # fn main() {}
/// ```
///
/// # Description
// The documentation in `soybean-macros` follows.
#[doc(inline)]
pub use soybean_macros::model;
#[doc(hidden)]
pub use soybean_macros::{__Configured, __continue, __removed};
#[doc(inline)]
pub use soybean_macros::{constant, layer, operator};
pub use soybean_plan as plan;
pub use soybean_runtime as runtime;
pub use soybean_runtime::{
    Array, Config, Counters, Device, Error, Evaluation, MemoryBesidePlan, Process, Trace,
    checkpoint, data, weights,
};

pub use eager::Tensor;
pub use network::{Batch, Network, Outputs};
pub use oracle::EagerEvaluation;
pub use predictor::Predictor;
pub use run::{
    Curve, DataOptions, DatasetEvaluation, End, EvaluationRecord, Event, Flow, HeldOutBatch,
    Metric, Resume, Schedule, Split, Start, StepRecord, Summary, TrainConfig,
};
pub use trainer::Trainer;

/// The items that a model's function uses.
pub mod prelude {
    pub use crate::eager::{
        Init, Tensor, arange, buffer, concat, constant, full, he_normal, he_uniform, normal, ones,
        param, stack, state, trunc_normal, uniform, xavier_normal, xavier_uniform, zeros,
    };
    pub use crate::scope::scope;
}
