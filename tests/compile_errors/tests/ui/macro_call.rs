use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    println!("{x:?}");
    let v = vec![1, 2];
    x.mean(..)
}

fn main() {}
