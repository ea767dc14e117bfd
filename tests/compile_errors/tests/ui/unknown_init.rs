use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 10], he_nomal());
    let b = param("b", [10], 0.0);
    let c = param("c", [10], normal());
    (x.matmul(w) + b + c).mean(..)
}

fn main() {}
