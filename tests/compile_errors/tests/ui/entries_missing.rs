fn main() {}

#[soybean::model(gpus = 1, mode = "inference", entries = (few, many))]
mod sizes {
    use soybean::prelude::*;

    fn few(x: Tensor<f32, 2, 6>) -> Tensor {
        x.sum(1)
    }
}
