use soybean::prelude::*;

#[soybean::model(gpus = 12, cluster = "dgx-h100")]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.matmul(param("w", [784, 32], zeros())).mean(..)
}

fn main() {}
