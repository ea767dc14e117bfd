use soybean::prelude::*;

#[soybean::model(gpus = 8, memory = "80")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
