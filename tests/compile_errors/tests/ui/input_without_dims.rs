use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor, y: Tensor<f32, 4>, n: usize) -> Tensor {
    (x - y).mean(..)
}

fn main() {}
