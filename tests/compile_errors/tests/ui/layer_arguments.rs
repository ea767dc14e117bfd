#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [x.dim(1), out], he_normal()))
    }

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        dense(x).mean(..) + dense(x, 10, 3).mean(..)
    }
}

fn main() {}
