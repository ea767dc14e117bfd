fn main() {}

#[soybean::model(gpus = 1, entries = (forward))]
mod sizes {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }
}
