#[soybean::model(gpus = 2)]
mod arguments {
    use soybean::prelude::*;

    fn dense(x: Tensor) -> Tensor {
        x * param("w", [6], ones())
    }

    pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<f32, 8, 6>) -> Tensor {
        let one = scope("one");
        let called = scope("called", dense(x));
        let named = scope("named", dense);
        let taking = scope("taking", |x| dense(x));
        let moved = scope("moved", move || dense(x));
        let numbered = scope(1, || dense(x));
        (one + called + named + taking + moved + numbered).mse(y)
    }
}

#[soybean::model(gpus = 2)]
mod shared {
    use soybean::{nn, prelude::*};

    fn parts(x: Tensor, n: usize, std: f64) -> Tensor {
        let shift = param("shift", [n], zeros());
        x + param("scale", [6], normal(std)) + shift.sum(..)
    }

    pub fn forward(x: Tensor<f32, 8, 6>, y: Tensor<f32, 8, 6>) -> Tensor {
        let first = scope("parts", || parts(x, 6, 0.1));
        let second = scope("parts", || parts(x, 5, 0.1));
        let third = scope("parts", || parts(x, 6, 0.2));
        let kept = scope("kept", || buffer("w", [6], ones()));
        let trained = scope("kept", || param("w", [6], ones()));
        let twice = scope("twice", || param("w", [6], ones()) + param("w", [6], ones()));
        let layer = scope("layer", || nn::linear(x, 6));
        let narrow = scope("layer", || nn::linear(x.slice(1, 0, 3), 6));
        let assigned = scope("assigned", || buffer("b", [6], ones()).assign(x.mean(0)));
        let again = scope("assigned", || buffer("b", [6], ones()).assign(x.mean(0)));
        (first + second + third + kept + trained + twice + layer + narrow + assigned + again).mse(y)
    }
}

fn main() {}
