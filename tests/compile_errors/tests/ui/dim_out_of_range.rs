use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let n = x.dim(2);
    let h = x.softmax(-3);
    (h * param("w", [n], ones())).mean(..)
}

fn main() {}
