use soybean::prelude::*;

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 10>, labels: Tensor<i32, 64>) -> Tensor {
    let a = x.cross_entropy_with(labels, 1.0, -100, "average", 0.0);
    let b = x.cross_entropy_with(labels, x, -100, "mean", 0.0);
    let c = x.cross_entropy_with(labels, 1.0, -100, "mean");
    let d = x.cosine_similarity(x, 1, 0.0).mean(..);
    a + b + c + d
}

fn main() {}
