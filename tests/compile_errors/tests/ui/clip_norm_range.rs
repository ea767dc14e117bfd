use soybean::prelude::*;

#[soybean::model(gpus = 8, clip_norm = 0.0)]
fn zero(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, clip_norm = 1e39)]
fn large(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, clip_norm = 1e-46)]
fn small(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

fn main() {}
