mod nn {
    use soybean::prelude::*;

    pub const WIDTH: usize = 8;

    pub fn dense(x: Tensor) -> Tensor {
        x.matmul(param("w", [6, 6], he_normal()))
    }
}

#[soybean::model(gpus = 2)]
pub mod mlp {
    use super::nn::{WIDTH, dense};
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, WIDTH, 6>) -> Tensor {
        (dense(x) + super::nn::dense(x)).mean(..)
    }
}

fn main() {
    let _ = mlp::Trainer::PLAN;
}
