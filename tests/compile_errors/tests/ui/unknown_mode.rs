use soybean::prelude::*;

#[soybean::model(gpus = 2, mode = "inferance", clip_norm = 0.0)]
fn logits(x: Tensor<f32, 8, 4>) -> Tensor {
    x.matmul(param("w", [4, 2], zeros()))
}

fn main() {}
