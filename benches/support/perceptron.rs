//! Perceptrons made without a macro.

use soybean_compiler::{Argument, Builder, graph::Value};
use soybean_plan::{DType, Init};

/// A perceptron whose layers all have `width` units, with cross-entropy over as many classes; the builder and the loss.
pub(crate) fn perceptron(batch: usize, width: usize, n_layers: usize) -> (Builder, Value) {
    let mut builder = Builder::new();
    let mut h = builder.input("x", DType::F32, &[batch, width]);
    let y = builder.input("y", DType::I32, &[batch]);
    for layer in 0..n_layers {
        let init = Init::Uniform { low: -0.03, high: 0.03 };
        let w = builder.parameter(&format!("w.{layer}"), &[width, width], init);
        let b = builder.parameter(&format!("b.{layer}"), &[width], Init::Constant(0.0));
        let product = call(&mut builder, "matmul", &[h, w]);
        h = call(&mut builder, "add", &[product, b]);
        if layer + 1 < n_layers {
            h = call(&mut builder, "relu", &[h]);
        }
    }
    let loss = call(&mut builder, "cross_entropy", &[h, y]);
    (builder, loss)
}

fn call(builder: &mut Builder, operator: &str, operands: &[Value]) -> Value {
    let arguments: Vec<Argument> = operands.iter().map(|it| Argument::Tensor(*it)).collect();
    match builder.call(operator, &arguments) {
        Ok(Argument::Tensor(value)) => value,
        other => unreachable!("the shapes fit, and the result is a tensor: {other:?}"),
    }
}
