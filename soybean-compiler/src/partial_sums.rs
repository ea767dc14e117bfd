//! Partial sums in the tiling search: which tensors may be stored so, and which operators may read
//! and give them.
//!
//! | tensor or operator | partial sums |
//! | --- | --- |
//! | a number that totals alone read | always, along all axes |
//! | a sum over a factor that additions read, at once or through changes of shape | where cheaper |
//! | an addition; a change of shape of such a tensor | where cheaper |
//! | the sum of the gradients of several steps, which is kept between them | where cheaper |
//! | everything else | never |
//!
//! Maxima, integers, pinned tensors and results of a step are never stored so. A sum of partial
//! sums in `bf16` is rounded on every rank, as the partial results of products are; terms of `f32`
//! are not rounded before all of them are added up.

use std::collections::BTreeSet;

use soybean_plan::{Combine, DType};

use crate::{
    graph::Graph,
    network::Network,
    operator::Operator,
    operators::{accumulate::Accumulate, addition::Addition, total::Total},
    signature::{Signature, factor_id},
    value::Value,
};

/// How a tensor is stored along an axis that splits none of its dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Idle {
    /// Replicated.
    Replicated,
    /// As partial sums.
    Partial,
    /// As the search chooses.
    Either,
}

/// The partial sums of a network.
#[derive(Debug)]
pub(crate) struct PartialSums {
    /// For each tensor, how it may be stored.
    pub(crate) idle: Vec<Idle>,
    /// For each tensor, whether its operator may read and give partial sums.
    pub(crate) may_be_terms: Vec<bool>,
}

impl PartialSums {
    pub(crate) fn of(network: &Network) -> Self {
        let graph = &network.graph;
        let roots: BTreeSet<Value> = network.roots().into_iter().collect();
        let is_bound = |it: Value| roots.contains(&it) || graph.node(it).pinned.is_some();
        let is_sum = sums(network);
        let mut idle = vec![Idle::Replicated; graph.n_values()];
        let mut may_be_terms = vec![false; graph.n_values()];
        // Readers come after what they read.
        for value in graph.values().rev() {
            let users = graph.users(value);
            let is_total = |it: &Value| graph.operator_as::<Total>(*it).is_some();
            let is_of_totals = !users.is_empty() && users.iter().all(is_total);
            let is_read_so = users.iter().any(|it| may_be_terms[it.index()]);
            let at = value.index();
            let is_number = graph.shape(value).is_empty();
            if is_number && is_of_totals && is_combined_by_sum(graph, value) && !is_bound(value) {
                idle[at] = Idle::Partial;
            }
            if is_read_so && is_sum[at] && !is_bound(value) {
                idle[at] = Idle::Either;
            }
            let is_sum_of = |it: &Operator| it.is::<Addition>() || it.is::<Accumulate>();
            let is_addition = graph.operator(value).is_some_and(is_sum_of);
            may_be_terms[at] = is_sum[at]
                && is_additive(graph, value)
                && (is_addition || idle[at] == Idle::Either);
        }
        Self { idle, may_be_terms }
    }
}

/// Marks the tensors that operators can give as partial sums. The sum of the gradients of several
/// steps is one if their gradients are.
fn sums(network: &Network) -> Vec<bool> {
    let graph = &network.graph;
    let mut marks = vec![false; graph.n_values()];
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let signature = operator.signature(&graph.operand_shapes(value));
        let reads_sums = || graph.operands(value).iter().any(|it| marks[it.index()]);
        marks[value.index()] = adds_up(&signature) || is_additive(graph, value) && reads_sums();
    }
    for sum in &network.gradient_sums {
        marks[sum.state.index()] = marks[sum.next.index()];
    }
    marks
}

fn is_combined_by_sum(graph: &Graph, value: Value) -> bool {
    let signature = |it: &Operator| it.signature(&graph.operand_shapes(value));
    graph.operator(value).is_some_and(|it| signature(it).combine == Combine::Sum)
}

/// Returns whether an operator gives partial sums if some factor is split.
pub(crate) fn adds_up(signature: &Signature) -> bool {
    let is_reduced = |it: usize| signature.factors[it] > 1 && signature.is_reduced(factor_id(it));
    signature.combine == Combine::Sum && (0..signature.factors.len()).any(is_reduced)
}

/// Returns whether the operator that computes a tensor gives partial sums of partial sums. Its
/// result has the type of the operands, so that no term is rounded more often than the sum.
fn is_additive(graph: &Graph, value: Value) -> bool {
    let Some(operator) = graph.operator(value) else { return false };
    let dtype = graph.node(value).dtype;
    operator.signature(&graph.operand_shapes(value)).is_additive
        && dtype != DType::I32
        && graph.operands(value).iter().all(|it| graph.node(*it).dtype == dtype)
}
