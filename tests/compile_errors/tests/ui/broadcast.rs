use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    (x + param("b", [783], zeros())).mean(..)
}

fn main() {}
