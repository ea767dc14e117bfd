#[soybean::model(gpus = 2)]
pub mod options {
    use soybean::{
        nn::{self, Window},
        prelude::*,
    };

    pub fn forward(x: Tensor<f32, 8, 3, 8, 8>) -> Tensor {
        let window = Window { kernel: 3, stride: 1, padding: 1 };
        let wide = Window { kernel: 11, ..window };
        let h = nn::conv2d(x, 4, Window { stride: 2, ..3 });
        let n = window.kernels + h.kernel;
        nn::conv2d(nn::conv2d(x, 4, wide), 4, wide).mean(..)
    }
}

fn main() {}
