fn main() {}

#[soybean::model(gpus = 1, entries = (discriminator, generator))]
mod both {
    use soybean::prelude::*;

    fn critic(x: Tensor) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn discriminator(x: Tensor<f32, 2, 6>) -> Tensor {
        critic(x)
    }

    pub fn generator(x: Tensor<f32, 2, 6>) -> Tensor {
        critic(x * param("maker", [6], ones()))
    }
}

#[soybean::model(gpus = 1, entries = (discriminator(freeze = ["critic.*"]), generator(freeze = ["critic.*"])))]
mod nothing {
    use soybean::prelude::*;

    fn critic(x: Tensor) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn discriminator(x: Tensor<f32, 2, 6>) -> Tensor {
        critic(x)
    }

    pub fn generator(x: Tensor<f32, 2, 6>) -> Tensor {
        critic(x * param("maker", [6], ones()))
    }
}
