//! Dense layers with ReLU between them.

use soybean_plan::DType;

use crate::{Layers, Model};

/// Returns layers of these widths, with biases and cross-entropy over the last width.
///
/// # Panics
/// If there are no widths.
#[must_use]
pub fn perceptron(batch: usize, widths: &[usize]) -> Model {
    dense_layers(batch, widths, true).classified(&[batch])
}

/// Returns layers of these widths without biases, whose loss is the mean of their outputs: the
/// networks of the paper's arithmetic.
///
/// # Panics
/// If there are no widths.
#[must_use]
pub fn mlp(batch: usize, widths: &[usize]) -> Model {
    dense_layers(batch, widths, false).averaged()
}

fn dense_layers(batch: usize, widths: &[usize], has_bias: bool) -> Layers {
    let it = Layers::new(DType::F32, &[batch, widths[0]], has_bias);
    let layer = |it: Layers, (at, &width): (usize, &usize)| {
        let it = if at == 0 { it } else { it.apply("relu", &[]) };
        it.dense(width)
    };
    widths[1..].iter().enumerate().fold(it, layer)
}
