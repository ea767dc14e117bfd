use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn forward(x: Tensor<f32, 8, 6>) -> Tensor {
    let b = param("b", [6], he_uniform());
    let c = param("c", [6], trunc_normal());
    (x + b + c).mean(..)
}

fn main() {}
