#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    static WIDTH: usize = 256;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        static UNITS: [usize; 1] = [4];
        let w = param("w", [784, WIDTH], he_normal());
        (x.matmul(w) + param("b", [UNITS[0], WIDTH], zeros())).mean(..)
    }
}

fn main() {}
