//! Perceptrons whose loss is the mean of their outputs.

use soybean_compiler::{Argument, Network, Optimizer, build_network};

use super::{call, mlp};

/// Returns the same MLP with the results of the last layer as an output. These are then whole, as
/// in plain descriptions of the algorithm; otherwise ranks average their own terms of them.
pub(crate) fn averaged_mlp_with_output(batch: usize, widths: &[usize]) -> Network {
    let (mut builder, outputs) = mlp(batch, widths, false);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(outputs), Argument::All]);
    let outputs = [("outputs".to_owned(), outputs)];
    build_network(builder, loss, &outputs, &Optimizer::default()).unwrap()
}

/// Returns an MLP through layers of these widths, with ReLU between them.
pub(crate) fn averaged_mlp(batch: usize, widths: &[usize], has_bias: bool) -> Network {
    let (mut builder, outputs) = mlp(batch, widths, has_bias);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(outputs), Argument::All]);
    build_network(builder, loss, &[], &Optimizer::default()).unwrap()
}
