#[soybean::model(gpus = 2)]
pub mod mlp {
    use soybean::prelude::*;
    async fn slow(x: Tensor) -> Tensor {
        x
    }

    fn generic<const N: usize>(x: Tensor) -> Tensor {
        x
    }

    fn endless(x: Tensor) -> Tensor {
        endless(x)
    }

    pub fn forward(x: Tensor<f32, 64, 784>) -> Tensor {
        slow(x).mean(..) + generic(x).mean(..) + endless(x).mean(..)
    }
}

fn main() {}
