use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn forward(x: Tensor<f32, 8, 6>) -> Tensor {
    let w = param("w", [4, 6], xavier_normal());
    x.matmul(w.transpose()).argmax(1).to_f32().mean(..)
}

fn main() {}
