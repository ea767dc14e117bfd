use layer_crate::dense;
use soybean::prelude::{Tensor, he_normal, param};

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    x.matmul(param("w", [700, 10], he_normal())).mean(..)
}

mod unmarked {
    use soybean::prelude::*;

    pub fn scaled(x: Tensor) -> Tensor {
        x * 2.0
    }
}

use unmarked::scaled;

#[soybean::model(gpus = 2)]
fn other(x: Tensor<f32, 8, 6>) -> Tensor {
    scaled(dense(x, 4)).mean(..)
}

fn main() {}
