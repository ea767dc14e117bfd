//! Well-known networks as calls of the compiler's builder, for tests, benchmarks and tables of the
//! search.

mod convolutional;
mod experts;
mod inception;
mod layers;
mod mobile;
mod perceptron;
mod residual;
mod transformer;
mod unet;
mod zoo;

use soybean_compiler::{Builder, Value};

pub use convolutional::{alexnet, cnn5, vgg16};
pub use experts::Experts;
pub use inception::inception_v3;
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
}
