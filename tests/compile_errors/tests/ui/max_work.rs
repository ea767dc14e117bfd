use soybean::prelude::*;

#[soybean::model(gpus = 8, max_work = 0.5)]
fn little(x: Tensor<f32, 64, 32>) -> Tensor {
    x.matmul(param("w", [32, 32], zeros())).mean(..)
}

#[soybean::model(gpus = 8, max_work = "much")]
fn much(x: Tensor<f32, 64, 32>) -> Tensor {
    x.matmul(param("w", [32, 32], zeros())).mean(..)
}

fn main() {}
