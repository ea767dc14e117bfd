use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let h = x.rellu();
    let h = h.convolve(3);
    h.mean(..)
}

fn main() {}
