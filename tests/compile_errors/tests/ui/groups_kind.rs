fn main() {}

#[soybean::model(
    gpus = 1,
    groups = [
        "*.b",
        (3, sgd),
        ("*.b", sgdd),
        ("*.b", adamw(no_decay = ["*"])),
        ("*.b", sgd, 2.0),
        ("*.b", sgd, learning_rate_factor = 0.0),
        ("*.b", sgd, learning_rate_factor = "x"),
        ("*.b", sgd, weight_decay = 0.0),
    ]
)]
mod linear {
    use soybean::{nn, prelude::*};

    pub fn forward(x: Tensor<f32, 2, 6>, y: Tensor<f32, 2, 3>) -> Tensor {
        nn::linear(x, 3).mse(y)
    }
}
