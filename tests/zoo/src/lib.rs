//! Well-known networks as calls of the compiler's builder, for tests, benchmarks and tables of the
//! search.

mod clip;
mod convolutional;
mod diffusion;
mod experts;
mod inception;
mod large;
mod layers;
mod llama;
mod mobile;
mod perceptron;
mod recommender;
mod residual;
mod routed;
mod t5;
mod transformer;
mod unet;
mod vit;
mod zoo;

use soybean_compiler::{Builder, Value};

pub use convolutional::{alexnet, cnn5, vgg16};
pub use experts::Experts;
pub use inception::inception_v3;
pub use large::LARGE;
pub use layers::Layers;
pub use mobile::mobilenet_v2;
pub use perceptron::{mlp, perceptron};
pub use residual::{resnet20, resnet50};
pub use transformer::{GPT, Transformer};
pub use unet::unet;
pub use zoo::{Entry, ZOO};

/// A network with its loss, ready to be compiled.
#[derive(Clone, Debug)]
pub struct Model {
    /// The forward graph.
    pub builder: Builder,
    /// The scalar loss.
    pub loss: Value,
    /// The output of the last layer, usually logits.
    pub output: Value,
    /// Tensors that experts' plans are about.
    pub landmarks: Landmarks,
}

impl Model {
    /// Returns a network without landmarks.
    #[must_use]
    pub fn new(builder: Builder, loss: Value, output: Value) -> Self {
        Self { builder, loss, output, landmarks: Landmarks::default() }
    }
}

/// The tensors of a network from which the bytes of experts' plans follow, and which such plans
/// pin.
#[derive(Clone, Debug, Default)]
pub struct Landmarks {
    /// The results of residual connections.
    pub residuals: Vec<Value>,
    /// The greatest number that divides the number of heads of each attention; 0 without attention.
    pub n_heads: usize,
    /// Parameters whose gradients stay on the rank of an expert or of columns of a table.
    pub local: Vec<Value>,
    /// Tensors that all-to-alls bring from ranks with samples to those of `local` parameters, or
    /// back.
    pub switched: Vec<Value>,
    /// Features of samples that every rank needs for its loss.
    pub gathered: Vec<Value>,
}
