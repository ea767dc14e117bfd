use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 784], he_normal());
    let mut h = x;
    for _ in 0..h.sum(..) {
        h = h.matmul(w);
    }
    for _ in 0..depth() {
        h = h.matmul(w);
    }
    h.mean(..)
}

fn main() {}
