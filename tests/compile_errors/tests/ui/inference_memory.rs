#[soybean::model(gpus = 2, mode = "inference", memory = "1KiB")]
mod net {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 8, 64>) -> Tensor {
        x.matmul(param("w", [64, 64], zeros()))
    }
}

fn main() {}
