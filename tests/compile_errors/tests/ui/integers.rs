use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64>, y: Tensor<i32, 64>) -> Tensor {
    let scaled = y * 0.5;
    let mixed = x + y;
    let halves = y / 2;
    let nothing = y.floor_divide(0);
    let large = y + 2147483648;
    let chosen = y.where_(x.gt(0.0), x);
    let filled = y.masked_fill(x.gt(0.0), 0.5);
    let kept = y.clamp(-1.5, 1);
    let root = y.sqrt();
    let mean = y.mean(..);
    (x * (y * 2 - 1).remainder(3).to_f32()).mean(..)
}

fn main() {}
