use soybean::prelude::*;

#[soybean::model(gpus = 2, memory = "1MiB", optimizer = adam)]
fn model(x: Tensor<f32, 64, 512>, y: Tensor<i32, 64>) -> Tensor {
    let v = param("v", [512, 512], he_normal());
    let w = param("w", [512, 16], he_normal());
    x.matmul(v).relu().matmul(w).cross_entropy(y)
}

fn main() {}
