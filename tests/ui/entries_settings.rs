fn main() {}

#[soybean::model(gpus = 1, entries = (first(rate = 1), second(freeze = "w")))]
mod wrong {
    use soybean::prelude::*;

    pub fn first(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn second(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }
}

#[soybean::model(gpus = 1, mode = "inference", entries = (forward(freeze = ["w"])))]
mod predicted {
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 2, 6>) -> Tensor {
        x * param("w", [6], ones())
    }
}
