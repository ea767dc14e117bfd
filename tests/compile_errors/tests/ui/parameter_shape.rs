use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let scale = x.mean(..);
    let w = param("w", [784, scale], he_normal());
    let v = param("v", [784, 0], he_normal());
    let u = param("u", 784, he_normal());
    (x.matmul(w) + x.matmul(v) + x * u).mean(..)
}

fn main() {}
