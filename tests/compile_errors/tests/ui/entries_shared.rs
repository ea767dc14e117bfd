fn main() {}

#[soybean::model(gpus = 2, mode = "inference", entries = (one, other))]
mod sizes {
    use soybean::prelude::*;

    pub fn one(x: Tensor<f32, 2, 6>) -> Tensor {
        x * param("w", [6], ones()) + param("b", [6], zeros())
    }

    pub fn other(x: Tensor<f32, 2, 3>) -> Tensor {
        x * param("w", [3], ones()) + param("b", [6], ones()).mean(..)
    }
}

#[soybean::model(gpus = 2, mode = "inference", entries = (one, other))]
mod kinds {
    use soybean::prelude::*;

    pub fn one(x: Tensor<f32, 2, 6>) -> Tensor {
        x * buffer("w", [6], ones()) * param("b", [6], ones()).tiled("P0")
    }

    pub fn other(x: Tensor<f32, 4, 6>) -> Tensor {
        x * param("w", [6], ones()) * param("b", [6], ones()).tiled("r")
    }
}
