use soybean::prelude::*;

#[soybean::model(strategy = "auto")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
