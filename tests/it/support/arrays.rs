//! A trainer's tensors as eager tensors.

use soybean::{Array, Tensor};

pub(crate) fn tensor(array: &Array) -> Tensor {
    let elements: Vec<f64> = array.data.iter().map(|it| f64::from(*it)).collect();
    Tensor::new(&array.shape, &elements)
}
