use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> (Tensor, usize) {
    let loss = (x * param("w", [784], normal(0.1))).mean(..);
    (loss, 3)
}

fn main() {}
