use soybean::prelude::*;

#[soybean::model(gpus = 11, cluster = "2x8-h100-ib")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.matmul(param("w", [784, 32], zeros())).mean(..)
}

fn main() {}
