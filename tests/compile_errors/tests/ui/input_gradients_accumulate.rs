use soybean::prelude::*;

#[soybean::model(gpus = 8, input_gradients = ["x"], accumulate = 2)]
fn model(x: Tensor<f32, 64, 784>, y: Tensor<i32, 64>) -> Tensor {
    x.matmul(param("dense.w", [784, 8], ones())).cross_entropy(y)
}

fn main() {}
