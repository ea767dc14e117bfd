use soybean::prelude::*;

#[soybean::model(gpu = 8, optimizr = sgd)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
