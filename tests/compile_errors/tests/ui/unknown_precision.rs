use soybean::prelude::*;

#[soybean::model(gpus = 8, precision = "fp16")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
