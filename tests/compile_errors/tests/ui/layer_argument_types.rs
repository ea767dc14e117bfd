#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;

    fn dense(x: Tensor, out: usize) -> Tensor {
        x.matmul(param("w", [x.dim(1), out], he_normal()))
    }

    fn scaled(x: Tensor, (by, shift): (f64, f64), is_last: bool) -> Tensor {
        if is_last { x } else { x * by + shift }
    }

    fn power(x: Tensor, by: f64) -> Tensor {
        x * by
    }

    fn head(sizes: [usize; 2], init: Init, x: &Tensor<f32, 32, 64>) -> Tensor {
        x.matmul(param("v", sizes, init))
    }

    pub fn forward(x: Tensor<f32, 32, 64>) -> Tensor {
        let mut h = x;
        for _ in 0..2 {
            h = dense(x, x);
        }
        let a = dense(64, -1);
        let b = scaled(x, (2, 0.5), true);
        let c = scaled(x, (2.0, 0.5), 1) + power(x, 2);
        let d = head([64, 64, 1], normal(0.1), &x);
        let e = head([64, 64], 0.1, &x.transpose());
        (h + a + b + c + d + e).mean(..)
    }
}

fn main() {}
