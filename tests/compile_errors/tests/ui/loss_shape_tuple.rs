use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> (Tensor, Tensor) {
    let logits = x.matmul(param("w", [784, 10], he_normal()));
    (logits, logits.mean(..))
}

fn main() {}
