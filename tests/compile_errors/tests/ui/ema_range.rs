use soybean::prelude::*;

#[soybean::model(gpus = 8, ema = 1)]
fn whole(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, ema = 0.999999999)]
fn nearly(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

fn main() {}
