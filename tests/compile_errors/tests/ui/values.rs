#[soybean::model(gpus = 2)]
pub mod values {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
        let w = param("w", [6], ones());
        for _ in 3 {}
        for _ in 0.. {}
        for _ in 0..1_000_000_000 {}
        let long = [0; 1_000_000_000_000];
        let sizes = [1, 2, 3];
        let member = sizes[x];
        let of_number = 3[0];
        let chosen = if 3 { 1 } else { 2 };
        let (1 | 2) = 2;
        let letter = 65 as char;
        let sum = true + 1;
        let power = 10_i64.pow(100);
        3 = 4;
        let character = 'a';
        (x * w).mean(..)
    }
}

#[soybean::model(gpus = 2, optimizer = 3)]
fn optimizer(x: Tensor<f32, 4, 6>) -> Tensor {
    (x * param("w", [6], ones())).mean(..)
}

fn main() {}
