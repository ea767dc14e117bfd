mod nn {
    use soybean::prelude::*;

    fn activation(x: Tensor) -> Tensor {
        x.relu()
    }

    #[soybean::layer]
    pub fn dense(x: Tensor) -> Tensor {
        activation(x.matmul(param("w", [6, 6], he_normal())))
    }
}

fn main() {}
