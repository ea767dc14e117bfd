use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let h = match 3 {
        2 => x.relu(),
    };
    let t: Tensor;
    let k = &mut 3;
    h.mean(..)
}

fn main() {}
