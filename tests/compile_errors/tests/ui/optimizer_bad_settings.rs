use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = rmsprop(alpha = 1.0))]
fn one(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = rmsprop(centered = 1))]
fn flag(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = adagrad(rho = 0.9))]
fn unknown(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = lion(betas = 0.9))]
fn number(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = adafactor(beta2_decay = 0.8))]
fn positive(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = adafactor(d = 0.5))]
fn small(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

#[soybean::model(gpus = 8, optimizer = sgd(nesterov = true))]
fn nesterov(x: Tensor<f32, 64, 784>) -> Tensor {
    (x * param("dense.w", [784], ones())).mean(..)
}

fn main() {}
