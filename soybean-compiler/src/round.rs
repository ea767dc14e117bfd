//! Precision: which tensors of a fused network are `bf16`, and where numbers are rounded to it.
//!
//! | tensor | type where a network computes in `bf16` |
//! | --- | --- |
//! | parameters, the optimizer's states, buffers, and their next values | `f32` |
//! | gradients of parameters: what updates read, through maps and changes of shape | `f32` |
//! | results of reductions (sums, maxima, statistics of norms and softmax) | `f32` |
//! | gradients of embedding tables | `f32` |
//! | scalars, the loss among them | `f32` |
//! | inputs, as users give them; indices along a dim | `f32` |
//! | class labels and other integers | `i32` |
//! | operands of matrix products, convolutions and attention | `bf16`, by a rounding map |
//! | other results of these three; gathered rows of an embedding | `bf16` |
//! | results of maps | `bf16` if an operand is, or if a product reads them; else `f32` |
//! | pooled, permuted, padded, joined and reshaped tensors | as their operands |
//!
//! Each operator's own file states its rule ([`Rounding`]). Only stored tensors are rounded:
//! kernels compute in `f32`, and partial results in `bf16` are added up in `f32` and rounded once.
//! NCCL is the exception, since it may round at each hop between GPUs. The pass comes after fusion,
//! because a map that is not stored is not rounded either, and a cast becomes part of the map that
//! computes its operand. A parameter that products read is rounded by a map of its own. Ranks then
//! receive the rounded tensor, which is cheaper, and the search counts it so.

use std::collections::BTreeMap;

use soybean_plan::{DType, Precision};

use crate::{
    graph::Graph,
    network::Network,
    operator::{Operator, Rounding},
    operators::elementwise::Elementwise,
    rewrite::rewrite,
    scalar,
    value::Value,
};

/// Rounds the tensors of a network as the precision asks for.
#[must_use]
pub fn round(network: Network, precision: Precision) -> Network {
    let typed = match precision {
        // In memory the two are the same.
        Precision::F32 | Precision::Tf32 => network,
        Precision::Bf16 => rounded(&network),
    };
    Network { precision, ..typed }
}

fn rounded(network: &Network) -> Network {
    let mut pass = Pass { marks: Marks::new(network), casts: BTreeMap::new() };
    rewrite(network, |rewriter, value| {
        let Some(operator) = rewriter.old.operator(value) else {
            return Some(rewriter.copy(value));
        };
        let node = rewriter.old.node(value);
        let operands = rewriter.operands(value);
        let new = pass.computed(
            &mut rewriter.graph,
            Computed { value, dtype: node.dtype, operator, operands },
        );
        let new_node = rewriter.graph.node_mut(new);
        (new_node.pinned, new_node.unpadded) = (node.pinned, node.unpadded);
        Some(new)
    })
}

/// A computed tensor of the old network.
struct Computed<'a> {
    value: Value,
    dtype: DType,
    operator: &'a Operator,
    /// The operands in the new graph.
    operands: Vec<Value>,
}

/// The properties of each tensor of a network before any is rounded.
struct Marks {
    /// True if it is not rounded: scalars, next values, and tensors that become these elementwise
    /// or by a change of shape.
    is_exact: Vec<bool>,
    /// True if a product reads it, perhaps in another shape or order.
    is_factor: Vec<bool>,
}

impl Marks {
    fn new(network: &Network) -> Self {
        let graph = &network.graph;
        let is_next = network.next_values();
        let mut marks = Self {
            is_exact: vec![false; graph.n_values()],
            is_factor: vec![false; graph.n_values()],
        };
        for value in graph.values().rev() {
            let users = graph.users(value);
            let readers = || {
                let rule = |it: &Value| graph.operator(*it).map(|it| it.rounding());
                users.iter().filter_map(move |it| Some((it.index(), rule(it)?)))
            };
            let is_exact = |(reader, rule): (usize, Rounding)| {
                marks.is_exact[reader] && matches!(rule, Rounding::Map | Rounding::Alike)
            };
            let is_factor = |(reader, rule): (usize, Rounding)| {
                rule == Rounding::Product || (marks.is_factor[reader] && rule == Rounding::Alike)
            };
            let (is_exact, is_factor) = (readers().any(is_exact), readers().any(is_factor));
            let is_scalar = graph.shape(value).is_empty();
            marks.is_exact[value.index()] = is_exact || is_scalar || is_next.contains(&value);
            marks.is_factor[value.index()] = is_factor;
        }
        marks
    }
}

struct Pass {
    marks: Marks,
    /// For tensors of `f32` that products read, the same rounded.
    casts: BTreeMap<Value, Value>,
}

impl Pass {
    /// Adds the tensor that the operator gives, with operands and result of the types that its rule
    /// asks for.
    fn computed(&mut self, graph: &mut Graph, computed: Computed<'_>) -> Value {
        let Computed { value: old, dtype, operator, operands } = computed;
        let (is_exact, is_factor) =
            (self.marks.is_exact[old.index()], self.marks.is_factor[old.index()]);
        let rule = operator.rounding();
        let has_rounded = operands.iter().any(|&it| graph.node(it).dtype == DType::Bf16);
        let is_rounded = dtype == DType::F32
            && !is_exact
            && match rule {
                Rounding::Product | Rounding::Rounded => true,
                Rounding::Map | Rounding::Alike => has_rounded || is_factor,
                Rounding::Exact => false,
            };
        let reads_rounded = match rule {
            Rounding::Product => true,
            Rounding::Alike => is_rounded,
            Rounding::Map | Rounding::Rounded | Rounding::Exact => false,
        };
        let operands = match reads_rounded {
            true => operands.into_iter().map(|it| self.cast(graph, it)).collect(),
            false => operands,
        };
        let dtype = if is_rounded { DType::Bf16 } else { dtype };
        let operator = match operator.downcast_ref::<Elementwise>() {
            Some(map) => Elementwise { dtype, ..map.clone() }.into(),
            None => operator.clone(),
        };
        let new = graph.add(operator, &operands);
        graph.node_mut(new).dtype = dtype;
        new
    }

    /// Returns the tensor in `bf16`.
    fn cast(&mut self, graph: &mut Graph, value: Value) -> Value {
        let node = graph.node(value);
        if node.dtype != DType::F32 {
            return value;
        }
        let map = Elementwise::same(node.shape, 1, scalar::identity());
        let cast = || graph.add(Elementwise { dtype: DType::Bf16, ..map }.into(), &[value]);
        *self.casts.entry(value).or_insert_with(cast)
    }
}
