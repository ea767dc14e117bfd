use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784], ones());
    (x * w).sum([]) + w.mean([])
}

fn main() {}
