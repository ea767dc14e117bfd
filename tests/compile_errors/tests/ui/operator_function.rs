use soybean::operator::{Float, TensorMut, TensorRef};

#[soybean::operator("bk->bk", gradient = none)]
pub fn in_single_precision(_x: TensorRef<'_, f32>, _result: TensorMut<'_, f32>) {}

#[soybean::operator("bk,k->bk", gradient = none)]
pub fn one_operand<F: Float>(_x: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk", gradient = none)]
pub fn letter<F: Float>(b: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk", gradient = none)]
pub fn pattern<F: Float>(_: TensorRef<'_, F>, _result: TensorMut<'_, F>) {}

fn main() {}
