#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    pub fn forwards(x: Tensor<f32, 64, 784>) -> Tensor {
        x.mean(..)
    }
}

fn main() {}
