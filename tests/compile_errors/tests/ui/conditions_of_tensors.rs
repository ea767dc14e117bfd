use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let chosen = x.where_(1.0, 0.0);
    let filled = x.masked_fill(true, 0.0);
    let both = x.gt(0.0) && x.lt(1.0);
    let joined = x.gt(0.0) & 1.0;
    let inverse = x.gt(0.0).not();
    let rest = x % 2.0;
    x.gt(0.0).where_(!x.lt(0.0), 0).mean(..)
}

fn main() {}
