use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let mut h = x;
    let mut i = 0;
    while i < 3 {
        h = h.relu();
        i += 1;
    }
    loop {
        h = h.tanh();
        break;
    }
    h.mean(..)
}

fn main() {}
