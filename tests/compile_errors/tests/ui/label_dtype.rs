use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>, y: Tensor<f32, 64>) -> Tensor {
    x.matmul(param("w", [784, 10], he_normal())).cross_entropy(y)
}

fn main() {}
