fn main() {}

#[soybean::model(gpus = 2, ema = 0.9, entries = (critic(freeze = ["made"]), maker))]
mod players {
    use soybean::prelude::*;

    pub fn critic(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn maker(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("maker", [6], ones()) * param("w", [6], ones())).mean(..)
    }
}

#[soybean::model(gpus = 2, entries = (critic, maker))]
mod unequal {
    use soybean::prelude::*;

    pub fn critic(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn maker(x: Tensor<f32, 2, 6>) -> Tensor {
        (x * param("maker", [6], ones()) * param("w", [6], ones())).mean(..)
    }
}
