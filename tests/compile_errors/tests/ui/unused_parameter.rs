use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 10], he_normal());
    let unused = param("unused", [10, 10], he_normal());
    let also = unused.relu();
    x.matmul(w).mean(..)
}

fn main() {}
