#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    const A: usize = B;
    const B: usize = A;

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        let n = 7 / 0;
        let m = 2 + 0.5;
        let sizes = [1, 2, 3];
        let k = sizes[3];
        let p = 1_000_000_000_000 * 1_000_000_000_000;
        let t = x.dim(0).sqrt();
        (x * param("w", [A, n, k], he_normal())).mean(..)
    }
}

fn main() {}
