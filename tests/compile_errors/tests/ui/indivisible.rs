use soybean::prelude::*;

#[soybean::model(gpus = 2, padding = "off")]
fn model(x: Tensor<f32, 7, 5>) -> Tensor {
    let w = param("w", [5, 3], he_normal());
    x.matmul(w).mean(..)
}

fn main() {}
