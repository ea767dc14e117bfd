use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = sgd(momentum = 0..1))]
fn range(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = sgd(momentum = -0.9))]
fn negative(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = adam(eps = 1e39))]
fn infinite(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = adam(betas = (0.9, 1.0)))]
fn one(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

fn main() {}
