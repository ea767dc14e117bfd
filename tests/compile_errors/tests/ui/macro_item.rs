#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    macro_rules! relu {
        ($x:expr) => {
            $x.relu()
        };
    }

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        (x * param("w", [784], normal(0.1))).mean(..)
    }
}

fn main() {}
