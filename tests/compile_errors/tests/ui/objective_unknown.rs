use soybean::prelude::*;

#[soybean::model(gpus = 8, cluster = "dgx-h100", objective = "times")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.matmul(param("w", [784, 32], zeros())).mean(..)
}

fn main() {}
