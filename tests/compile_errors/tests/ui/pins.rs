use soybean::prelude::*;

#[soybean::model(gpus = 4)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 12], he_normal()).tiled("P0 Q1");
    let h = x.tiled("red").matmul(param("v", [784, 12], he_normal()).tiled("P2"));
    let once = x.tiled("P0 r");
    let twice = once.relu().tiled("P1").tiled("P1 P1").tiled("P0");
    let number = x.tiled(3);
    (x.tiled("").matmul(w) + twice).mean(..)
}

fn main() {}
