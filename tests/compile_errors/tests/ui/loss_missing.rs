use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> () {
    let w = param("w", [784, 10], he_normal());
    x.matmul(w).mean(..);
}

fn main() {}
