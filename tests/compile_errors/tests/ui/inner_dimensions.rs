use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w1 = param("w1", [784, 256], he_normal());
    let w2 = param("w2", [128, 10], he_normal());
    (x.matmul(w1) + param("b", [256], zeros())).relu().matmul(w2).mean(..)
}

fn main() {}
