use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, BATCH, 784>, y: Tensor<f64, 64, 784>, z: Tensor<f32, 0>) -> Tensor {
    (x - y).mean(..) + z.mean(..)
}

fn main() {}
