use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = sgd(momentun = 0.9))]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
