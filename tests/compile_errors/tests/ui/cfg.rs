use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    #[cfg(feature = "wide")]
    let x = x.relu();
    x.mean(..)
}

fn main() {}
