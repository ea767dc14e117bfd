use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param([784, 10], he_normal());
    let v = param(7, [784, 10], he_normal());
    x.matmul(w + v).mean(..)
}

fn main() {}
