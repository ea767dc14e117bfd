use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model() -> Tensor {
    param("w", [784, 10], he_normal()).mean(..)
}

fn main() {}
