fn main() {}

#[soybean::model(gpus = 1, mode = "inference", entries = (few(freeze = ["w"]), many))]
mod predicted {
    use soybean::prelude::*;

    pub fn few(x: Tensor<f32, 2, 6>) -> Tensor {
        x * param("w", [6], ones())
    }

    pub fn many(x: Tensor<f32, 4, 6>) -> Tensor {
        x * param("w", [6], ones())
    }
}

#[soybean::model(gpus = 1, entries = (one(fast), other(freeze = ["a"], clip_norm = 1.0), third(freeze = "a")))]
mod settings {
    use soybean::prelude::*;

    pub fn one(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("a", [6], ones())).mean(..)
    }

    pub fn other(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("a", [6], ones()) * param("b", [6], ones())).mean(..)
    }

    pub fn third(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("a", [6], ones()) * param("c", [6], ones())).mean(..)
    }
}

#[soybean::model(gpus = 1, entries = (one(freeze = ["a.*"]), other(freeze = ["a"])))]
mod unmatched {
    use soybean::prelude::*;

    pub fn one(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("a", [6], ones())).mean(..)
    }

    pub fn other(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("a", [6], ones()) * param("b", [6], ones())).mean(..)
    }
}
