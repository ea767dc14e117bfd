#[soybean::model(gpus = 2)]
pub mod calls {
    use soybean::prelude::*;
    const N: usize = 6;

    fn layer(x: Tensor) -> Tensor {
        x.relu()
    }

    pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
        let of_const = N(x);
        let of_tensor = x(3);
        let of_expression = (layer(x))(x);
        let function = layer;
        let method = Tensor::relu(x);
        let typed = x.relu::<f32>();
        let remainder = x % x;
        let joined = x.gt(0.0) || x.lt(1.0);
        let extents: Tensor<f32, 4, 5> = x.relu();
        (x * param("w", [N], ones())).mean(..)
    }
}

#[soybean::model(gpus = 2)]
fn unnamed(_: Tensor<f32, 4>) -> Tensor {
    param("w", [4], ones()).mean(..)
}

fn main() {}
