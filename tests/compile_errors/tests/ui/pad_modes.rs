use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 8>) -> Tensor {
    let a = x.pad([1, 1], "mirror");
    let b = x.pad([8, 0], "reflect");
    let c = x.pad([0, 9], "circular");
    let d = x.pad([-1, 0], "replicate");
    let e = x.pad([1, 0], true);
    let f = x.sum(..).matmul(x);
    let g = x.matmul(x.sum(1));
    let h = x.weighted_binary_cross_entropy_with_logits(x, x.sum(1), "mean", 1.0);
    x.pad([7, 7], "reflect").mean(..)
}

fn main() {}
