#![expect(dead_code)]

use soybean::prelude::*;

#[soybean::model(gpus = 1, accumulate = 4)]
fn several(x: Tensor<f32, 8, 6>, mask: Tensor<f32, 8>) -> Tensor {
    let h = x.matmul(param("w", [6, 1], ones())).reshape([8]);
    let of_labels = (h * mask).sum(..) / mask.sum(..);
    of_labels + 0.1 * h.square().mean(..)
}

#[soybean::model(gpus = 1, accumulate = 4)]
fn no_count(x: Tensor<f32, 8, 6>, mask: Tensor<f32, 8>) -> Tensor {
    let h = x.matmul(param("w", [6, 1], ones())).reshape([8]);
    let largest = mask.max(..);
    (h * mask).sum(..) / largest
}

#[soybean::model(gpus = 1, accumulate = 4)]
fn no_sum(x: Tensor<f32, 8, 6>, mask: Tensor<f32, 8, 6>) -> Tensor {
    let h = x * param("w", [6], ones());
    let means = (h * mask).sum(0) / mask.sum(0);
    means.mean(..)
}

#[soybean::model(gpus = 1, accumulate = 4)]
fn not_linear(x: Tensor<f32, 8, 6>, mask: Tensor<f32, 8>) -> Tensor {
    let h = x.matmul(param("w", [6, 1], ones())).reshape([8]);
    let loss = (h * mask).sum(..) / mask.sum(..);
    loss.exp()
}

fn main() {}
