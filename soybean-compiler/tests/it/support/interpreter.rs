//! An interpreter of operators and graphs in `f64`, on the reference implementations of kernels.

use std::collections::BTreeMap;

use soybean_compiler::{Value, graph::Graph};
use soybean_plan::{DType, Kernel, Shape, bf16};

/// The learning rate, which programs read as a run-time scalar.
pub(crate) const LEARNING_RATE: f64 = 0.01;

/// Runs a kernel with one result on dense operands.
fn run(kernel: &Kernel, operands: &[&[f64]]) -> Vec<f64> {
    let kernel = kernel.local().expect("operators have no collectives");
    let results = kernel.evaluate(operands, &[LEARNING_RATE; 8]);
    results.into_iter().next().expect("operators have one result")
}

/// Returns the result of an operator without a kernel: its operand in another shape, or without
/// operands the indices.
fn run_nothing(operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    match operands.first() {
        Some(operand) => operand.to_vec(),
        None => (0..result.n_elements()).map(|it| it as f64).collect(),
    }
}

/// Runs the kernel of an operator, if it has one.
///
/// The result is rounded as if it were stored: integers towards zero, `bf16` to the nearest.
pub(crate) fn run_operator(
    kernel: Option<&Kernel>,
    operands: &[&[f64]],
    result: &Shape,
    dtype: DType,
) -> Vec<f64> {
    let exact = match kernel {
        None => run_nothing(operands, result),
        Some(kernel) => run(kernel, operands),
    };
    match dtype {
        DType::F32 => exact,
        #[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
        DType::Bf16 => {
            let round = |it: f64| f64::from(bf16::to_f32(bf16::from_f32(it as f32)));
            exact.into_iter().map(round).collect()
        }
        DType::I32 => exact.into_iter().map(f64::trunc).collect(),
    }
}

/// Evaluates a graph from the values of its sources.
pub(crate) fn evaluate(
    graph: &Graph,
    sources: &BTreeMap<Value, Vec<f64>>,
) -> BTreeMap<Value, Vec<f64>> {
    evaluate_these(graph, sources, graph.values())
}

/// Evaluates some values of a graph, each of which comes after its operands.
pub(crate) fn evaluate_these(
    graph: &Graph,
    sources: &BTreeMap<Value, Vec<f64>>,
    these: impl Iterator<Item = Value>,
) -> BTreeMap<Value, Vec<f64>> {
    evaluate_changed(graph, sources, these, |_| ())
}

/// Evaluates values as [`evaluate_these`], and changes the result of each operator before others
/// read it.
pub(crate) fn evaluate_changed(
    graph: &Graph,
    sources: &BTreeMap<Value, Vec<f64>>,
    these: impl Iterator<Item = Value>,
    mut change: impl FnMut(&mut [f64]),
) -> BTreeMap<Value, Vec<f64>> {
    let mut values = sources.clone();
    for value in these {
        let Some(operator) = graph.operator(value) else { continue };
        let kernel = operator.kernel(&graph.operand_shapes(value), &graph.shape(value));
        let operands: Vec<&[f64]> =
            graph.operands(value).iter().map(|it| &values[it][..]).collect();
        let node = graph.node(value);
        let mut result = run_operator(kernel.as_ref(), &operands, &node.shape, node.dtype);
        change(&mut result);
        values.insert(value, result);
    }
    values
}
