use soybean::operator::{Float, TensorMut, TensorRef};

#[soybean::operator]
pub fn nothing<F: Float>(_: TensorRef<'_, F>, _: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk")]
pub fn without_gradient<F: Float>(_: TensorRef<'_, F>, _: TensorMut<'_, F>) {}

#[soybean::operator("bk->bk", gradients = none)]
pub fn misspelled<F: Float>(_: TensorRef<'_, F>, _: TensorMut<'_, F>) {}

#[soybean::operator("bk", gradient = none)]
pub fn without_result<F: Float>(_: TensorRef<'_, F>, _: TensorMut<'_, F>) {}

#[soybean::operator("b->bk", gradient = none)]
pub fn new_letter<F: Float>(_: TensorRef<'_, F>, _: TensorMut<'_, F>) {}

#[soybean::operator("b->b", gradient = none)]
pub struct NoFunction;

fn main() {}
