use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784], ones());
    let mut h = x * w;
    if h.sum(..) > 0.0 {
        h = h.relu();
    }
    h.mean(..)
}

fn main() {}
