fn main() {}

#[soybean::model(gpus = 1, groups = [("linear.bias", sgd), ("linear.b", adamw(eps = 1e-6))])]
mod linear {
    use soybean::{nn, prelude::*};

    pub fn forward(x: Tensor<f32, 2, 6>, y: Tensor<f32, 2, 3>) -> Tensor {
        nn::linear(x, 3).mse(y)
    }
}
