use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 784], he_normal());
    let v = param("w", [784, 10], he_normal());
    x.matmul(w).matmul(v).mean(..)
}

fn main() {}
