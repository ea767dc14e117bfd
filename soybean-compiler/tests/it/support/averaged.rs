//! Perceptrons whose loss is the mean of their outputs.

use soybean_compiler::{Argument, Network, Optimizer, build_network};

use super::{call, mlp};

/// Returns an MLP through layers of these widths, with ReLU between them.
pub(crate) fn averaged_mlp(batch: usize, widths: &[usize], has_bias: bool) -> Network {
    let (mut builder, outputs) = mlp(batch, widths, has_bias);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(outputs), Argument::All]);
    build_network(builder, loss, &[], &Optimizer::default()).unwrap()
}
