#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    pub struct Batch;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        (x * param("w", [784], normal(0.1))).mean(..)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
pub mod predicting {
    use soybean::prelude::*;
    pub struct Predictor;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        x * param("w", [784], normal(0.1))
    }
}

fn main() {}
