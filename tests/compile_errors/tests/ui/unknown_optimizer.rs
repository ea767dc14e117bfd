use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = adadelta(rho = 0.9))]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.mean(..)
}

fn main() {}
