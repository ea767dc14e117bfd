//! Sums of tensors with disjoint zero padding, as one concatenation. They arise from the gradients
//! of a tensor's parts.

use soybean_plan::Binary;

use crate::{
    graph::Graph,
    operators::{
        concatenate::Concatenate,
        elementwise::{Elementwise, all_dims},
        pad::Pad,
    },
    scalar,
    value::Value,
};

/// A tensor that is padded with zeros along one dim.
struct Window {
    part: Value,
    dim: usize,
    start: usize,
    end: usize,
}

/// Returns the sum as a concatenation, if it is one of two windows side by side.
pub(super) fn joined(graph: &mut Graph, map: &Elementwise, operands: &[Value]) -> Option<Value> {
    let space = all_dims(&map.extents);
    let is_sum =
        map.program == scalar::binary(Binary::Add) && map.operands.iter().all(|ids| *ids == space);
    let &[x, y] = operands else { return None };
    if !is_sum {
        return None;
    }
    let (x, y) = (window(graph, x)?, window(graph, y)?);
    let (first, second) = if x.end == y.start { (x, y) } else { (y, x) };
    if first.dim != second.dim || first.end != second.start {
        return None;
    }
    let dim = first.dim;
    let parts: Vec<Value> =
        [first.part, second.part].into_iter().flat_map(|it| parts(graph, it, dim)).collect();
    let joined = graph.add(Concatenate { dim }.into(), &parts);
    if second.end - first.start == map.extents[dim] {
        return Some(joined);
    }
    let mut low = vec![0; map.extents.len()];
    low[dim] = i32::try_from(first.start).expect("extents are far below 2^31");
    Some(graph.add(Pad { low, shape: map.extents, fill: 0.0 }.into(), &[joined]))
}

fn window(graph: &Graph, value: Value) -> Option<Window> {
    let pad = graph.operator_as::<Pad>(value)?;
    if graph.node(value).pinned.is_some() {
        return None;
    }
    let part = graph.operands(value)[0];
    let shape = graph.shape(part);
    let is_changed = |&dim: &usize| pad.low[dim] != 0 || shape[dim] != pad.shape[dim];
    let mut changed = (0..shape.len()).filter(is_changed);
    let dim = changed.next().filter(|_| changed.next().is_none() && pad.fill == 0.0)?;
    let start = usize::try_from(pad.low[dim]).ok()?;
    let end = start + shape[dim];
    (end <= pad.shape[dim]).then_some(Window { part, dim, start, end })
}

/// Returns the parts that are concatenated to a tensor along a dim; the tensor itself if there are
/// none.
fn parts(graph: &Graph, value: Value, dim: usize) -> Vec<Value> {
    match graph.operator_as::<Concatenate>(value) {
        Some(it) if it.dim == dim && graph.node(value).pinned.is_none() => graph.operands(value),
        _ => vec![value],
    }
}
