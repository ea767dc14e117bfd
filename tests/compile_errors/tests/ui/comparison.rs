use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let mask = x > 0.0;
    (x % 2.0).mean(..)
}

fn main() {}
