//! An operator in parts: each computed by the kernel of a rank, then joined.

use std::{collections::BTreeMap, ops::Range};

use soybean_compiler::{
    Value,
    graph::Graph,
    operator::Operator,
    signature::{Dim, Signature},
};
use soybean_plan::{Place, Shape};

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
        let part = |dims: &[Dim]| Part::new(&signature, dims, n_parts, &coordinates);
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
        // Hidden scores are infinities, whose difference is no number.
        assert!(
            x == y || (x - y).abs() <= 1e-9 * x.abs().max(1.0),
            "{case}: {operator} {signature} in {n_parts:?} parts: {y} instead of {x}"
        );
    }
}

/// A rank's part of a tensor with its halo.
struct Part {
    whole: Shape,
    /// For each dim, the index of each element; `None` outside the tensor.
    indices: Vec<Vec<Option<usize>>>,
    /// For each dim, the positions of the part without the halo.
    own: Vec<Range<usize>>,
}

impl Part {
    fn new(signature: &Signature, dims: &[Dim], n_parts: &[usize], coordinates: &[usize]) -> Self {
        let whole = dims.iter().map(|dim| dim.extent).collect();
        let mut part = Self { whole, indices: Vec::new(), own: Vec::new() };
        for dim in dims {
            let factor = dim.factor.map(usize::from).filter(|it| n_parts[*it] > 1);
            let Some(factor) = factor else {
                part.indices.push((0..dim.extent).map(Some).collect());
                part.own.push(0..dim.extent);
                continue;
            };
            let (n, extent) = (n_parts[factor], signature.factors[factor]);
            let length = match dim.place {
                Place::Outermost => dim.extent / n,
                Place::Innermost => extent / n,
            };
            let first = coordinates[factor] * length;
            let own = (0..dim.extent / n).map(|at| at / length * n * length + first + at % length);
            let [before, after] = dim.halo.unwrap_or_default();
            let above = (0..before).rev().map(|it| first.checked_sub(it + 1));
            let end = first + length;
            let below = (end..end + after).map(|it| Some(it).filter(|it| *it < dim.extent));
            part.indices.push(above.chain(own.map(Some)).chain(below).collect());
            part.own.push(before..before + dim.extent / n);
        }
        part
    }

    fn own_shape(&self) -> Shape {
        self.own.iter().map(Range::len).collect()
    }

    fn shape(&self) -> Shape {
        self.indices.iter().map(Vec::len).collect()
    }

    /// Returns the offset of an element in the tensor; `None` outside.
    fn offset(&self, point: &[usize]) -> Option<usize> {
        let indices = point.iter().zip(&self.indices).map(|(&at, indices)| indices[at]);
        Some(self.whole.dense_strides().offset(&indices.collect::<Option<Vec<usize>>>()?))
    }

    /// Returns the part of a tensor, with this value outside the tensor.
    fn read(&self, data: &[f64], outside: f64) -> (Shape, Vec<f64>) {
        let element = |point: &Vec<usize>| self.offset(point).map_or(outside, |it| data[it]);
        (self.shape(), self.shape().points().iter().map(element).collect())
    }

    /// Returns the places of the part's own elements in the part with its halo, and in the tensor.
    fn own_elements(&self) -> Vec<(usize, usize)> {
        let here = self.shape().dense_strides();
        let places = |point: Vec<usize>| {
            let point: Vec<usize> =
                point.iter().zip(&self.own).map(|(at, own)| at + own.start).collect();
            Some((here.offset(&point), self.offset(&point)?))
        };
        self.own_shape().points().into_iter().filter_map(places).collect()
    }
}
