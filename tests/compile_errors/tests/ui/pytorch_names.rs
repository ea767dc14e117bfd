use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let a = x.view([64, 28, 28]);
    let b = x.t();
    let [c, d] = x.unbind(1);
    let e = x.trunc();
    let f = x.size(0);
    let g = cat([x, x], 1);
    let h = relu(x);
    let i = x.relu_();
    let j = x.cat(x, 1);
    let k = x.concat(x, 1);
    (a + b + c + d + e + f + g + h + i + j + k).mean(..)
}

fn main() {}
