use soybean::operator::{Float, TensorMut, TensorRef};

#[soybean::operator("bk->bk", gradient = none)]
pub fn in_single_precision(_x: TensorRef<'_, f32>, _result: TensorMut<'_, f32>) {}

#[soybean::operator("bk,k->bk", gradient = none)]
pub fn one_operand<F: Float>(_x: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk", gradient = none)]
pub fn letter<F: Float>(b: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk", gradient = none)]
pub fn pattern<F: Float>(_: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

#[soybean::model(gpus = 2)]
mod m {
    use super::letter;
    use soybean::prelude::*;

    pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
        letter(x * param("w", [6], ones())).mean(..)
    }
}

fn main() {}
