use soybean::prelude::*;

#[soybean::model(gpus = 8, optimizer = gradients(), ema = 0.9)]
fn model(x: Tensor<f32, 64, 784>, y: Tensor<i32, 64>) -> Tensor {
    x.matmul(param("dense.w", [784, 8], ones())).cross_entropy(y)
}

fn main() {}
