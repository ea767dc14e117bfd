//! An operator in parts: each computed by the kernel of a rank, then joined.

use std::collections::BTreeMap;

use soybean_compiler::{Value, graph::Graph, operator::Operator, signature::Dim};
use soybean_plan::Shape;

use super::interpreter::run_operator;

/// Checks that the parts of an operator give its result, with each factor in this many parts.
pub(crate) fn check_split(
    case: &str,
    graph: &Graph,
    operator: &Operator,
    (value, values): (Value, &BTreeMap<Value, Vec<f64>>),
    n_parts: &[usize],
) {
    let signature = operator.signature(&graph.operand_shapes(value));
    let whole = &values[&value];
    let is_reduced = (0..n_parts.len())
        .any(|it| n_parts[it] > 1 && signature.is_reduced(u8::try_from(it).unwrap()));
    let nothing = if is_reduced { signature.combine.identity() } else { f64::NAN };
    let mut joined = vec![nothing; whole.len()];
    for coordinates in Shape::new(n_parts).points() {
        let part = |dims: &[Dim]| Part::new(dims, n_parts, &coordinates);
        let parts: Vec<(Shape, Vec<f64>)> = graph
            .operands(value)
            .iter()
            .enumerate()
            .map(|(at, operand)| {
                let outside = operator.outside(at).identity();
                part(&signature.operands[at]).read(&values[operand], outside)
            })
            .collect();
        let (shapes, data): (Vec<Shape>, Vec<&[f64]>) =
            parts.iter().map(|(shape, data)| (*shape, &data[..])).unzip();
        let result = part(&signature.result);
        let dtype = graph.node(value).dtype;
        let kernel = operator.kernel(&shapes, &result.own_shape());
        let computed = run_operator(kernel.as_ref(), &data, &result.shape(), dtype);
        assert_eq!(computed.len(), result.shape().n_elements(), "{case}: {operator} {signature}");
        for (from, to) in result.own_elements() {
            joined[to] = match is_reduced {
                true => signature.combine.evaluate(joined[to], computed[from]),
                false => computed[from],
            };
        }
    }
    for (x, y) in whole.iter().zip(&joined) {
        assert!(
            (x - y).abs() <= 1e-9 * x.abs().max(1.0),
            "{case}: {operator} {signature} in {n_parts:?} parts: {y} instead of {x}"
        );
    }
}

/// A rank's part of a tensor with its halo.
struct Part {
    whole: Shape,
    /// For each dim, the first index of the part, its length, and the halo.
    dims: Vec<(usize, usize, [usize; 2])>,
}

impl Part {
    fn new(dims: &[Dim], n_parts: &[usize], coordinates: &[usize]) -> Self {
        let of_dim = |dim: &Dim| {
            let factor = dim.factor.map(usize::from).filter(|it| n_parts[*it] > 1);
            let Some(factor) = factor else { return (0, dim.extent, [0; 2]) };
            let length = dim.extent / n_parts[factor];
            (coordinates[factor] * length, length, dim.halo.unwrap_or_default())
        };
        let whole = dims.iter().map(|dim| dim.extent).collect();
        Self { whole, dims: dims.iter().map(of_dim).collect() }
    }

    fn own_shape(&self) -> Shape {
        self.dims.iter().map(|it| it.1).collect()
    }

    fn shape(&self) -> Shape {
        self.dims.iter().map(|(_, length, [before, after])| length + before + after).collect()
    }

    /// Returns the part of a tensor, with this value outside the tensor.
    fn read(&self, data: &[f64], outside: f64) -> (Shape, Vec<f64>) {
        let strides = self.whole.dense_strides();
        let element = |point: &Vec<usize>| {
            let mut offset = 0;
            for (dim, at) in point.iter().enumerate() {
                let (first, _, [before, _]) = self.dims[dim];
                match (first + at).checked_sub(before).filter(|it| *it < self.whole[dim]) {
                    Some(index) => offset += index * strides.0[dim],
                    None => return outside,
                }
            }
            data[offset]
        };
        (self.shape(), self.shape().points().iter().map(element).collect())
    }

    /// Returns the places of the part's own elements in the part with its halo, and in the tensor.
    fn own_elements(&self) -> Vec<(usize, usize)> {
        let (here, there) = (self.shape().dense_strides(), self.whole.dense_strides());
        let places = |point: &Vec<usize>| {
            let at = |dim: usize| (point[dim] + self.dims[dim].2[0], point[dim] + self.dims[dim].0);
            let (here_at, there_at): (Vec<usize>, Vec<usize>) = (0..point.len()).map(at).unzip();
            (here.offset(&here_at), there.offset(&there_at))
        };
        self.own_shape().points().iter().map(places).collect()
    }
}
