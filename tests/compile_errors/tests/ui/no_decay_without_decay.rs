use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = sgd(no_decay = ["*.b"]))]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

fn main() {}
