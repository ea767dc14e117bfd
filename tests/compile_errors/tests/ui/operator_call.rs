use soybean::operator::{Float, TensorMut, TensorRef};
use soybean::prelude::*;

#[soybean::operator("bk,k->bk", gradient = scaled_gradient)]
pub fn scaled<F: Float>(x: TensorRef<'_, F>, _w: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    result.data.copy_from_slice(x.data);
}

#[soybean::layer]
fn scaled_gradient(x: Tensor, w: Tensor, _result: Tensor, gradient: Tensor) -> (Tensor, Tensor) {
    (gradient * w, gradient * x)
}

#[soybean::operator("bk->bk", gradient = pair)]
pub fn copied<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    result.data.copy_from_slice(x.data);
}

#[soybean::layer]
fn pair(_x: Tensor, _result: Tensor, gradient: Tensor) -> (Tensor, Tensor) {
    (gradient, gradient)
}

#[soybean::model(gpus = 2)]
mod m {
    use super::scaled;
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 4, 6>, label: Tensor<i32, 4, 6>) -> Tensor {
        let w = param("w", [6], ones());
        let short = scaled(x, param("short", [5], ones()));
        let flat = scaled(x.sum(0), w);
        let of_integers = scaled(label, w);
        let missing = scaled(x);
        let number = scaled(x, 2.0);
        (short + flat + of_integers + missing + number).mean(..)
    }
}

#[soybean::model(gpus = 2)]
mod gradients {
    use super::{copied, scaled};
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
        let w = param("w", [6], ones());
        let h = scaled(x, w);
        copied(h).mean(..)
    }
}

fn main() {}
