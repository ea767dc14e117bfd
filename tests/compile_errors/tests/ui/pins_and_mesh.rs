#[soybean::model(gpus = 8)]
pub mod model {
    use soybean::prelude::*;

    fn dense(x: Tensor, out: usize) -> Tensor {
        let w = param("w", [x.dim(1), out], he_normal()).tiled("P1");
        x.matmul(w).tiled("P0 r")
    }

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        dense(dense(x, 64), 12).mean(..)
    }
}

fn main() {}
