use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 10>) -> Tensor {
    let a = x.pow("2");
    let b = x.celu(0.0);
    let c = x.reshape([-1, 7]);
    let d = x.reshape([-1, -1]);
    let [e, f, g] = x.chunk(3, 1);
    let h = x.arange(3);
    let i = x.matmul(full([3, 10, 2], 1.0).matmul(full([2, 2, 4], 1.0)));
    (a + b + c + d + e + f + g + h + i).mean(..)
}

fn main() {}
