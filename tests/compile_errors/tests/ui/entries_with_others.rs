fn main() {}

#[soybean::model(gpus = 1, ema = 0.9, input_gradients = ["x"], entries = (one, other))]
mod settings {
    use soybean::prelude::*;

    fn network(x: Tensor) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn one(x: Tensor<f32, 2, 6>) -> Tensor {
        network(x)
    }

    pub fn other(x: Tensor<f32, 4, 6>) -> Tensor {
        network(x)
    }
}

#[soybean::model(gpus = 1, accumulate = 2, entries = (a, b, c, d, e, f, g, h, i))]
mod many {
    use soybean::prelude::*;

    fn network(x: Tensor) -> Tensor {
        (x * param("w", [6], ones())).mean(..)
    }

    pub fn a(x: Tensor<f32, 1, 6>) -> Tensor {
        network(x)
    }

    pub fn b(x: Tensor<f32, 2, 6>) -> Tensor {
        network(x)
    }

    pub fn c(x: Tensor<f32, 3, 6>) -> Tensor {
        network(x)
    }

    pub fn d(x: Tensor<f32, 4, 6>) -> Tensor {
        network(x)
    }

    pub fn e(x: Tensor<f32, 5, 6>) -> Tensor {
        network(x)
    }

    pub fn f(x: Tensor<f32, 6, 6>) -> Tensor {
        network(x)
    }

    pub fn g(x: Tensor<f32, 7, 6>) -> Tensor {
        network(x)
    }

    pub fn h(x: Tensor<f32, 8, 6>) -> Tensor {
        network(x)
    }

    pub fn i(x: Tensor<f32, 9, 6>) -> Tensor {
        network(x)
    }
}
