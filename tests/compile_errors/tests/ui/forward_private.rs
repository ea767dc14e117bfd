#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        x.mean(..)
    }
}

fn main() {}
