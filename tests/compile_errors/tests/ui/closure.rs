use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let layer = |h: Tensor| h.relu();
    layer(x).mean(..)
}

fn main() {}
