#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    const HIDDEN: usize = 2 * SIZE;
    const WIDTH: usize = 256;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        let w = param("w", [784, HIDDEN], he_normal());
        let v = param("v", [784, WIDHT], he_normal());
        let h = layer(x.matmul(w));
        let k = parm("k", [784], he_normal());
        (h + x.matmul(v) + k).mean(..)
    }
}

fn main() {}
