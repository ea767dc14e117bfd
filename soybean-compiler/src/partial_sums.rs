//! Partial sums in the tiling search: which tensors may be stored so, and which operators may read
//! and give them.
//!
//! Operators that are linear in some of their operands may work on terms of them. The other
//! operands are then whole on each rank. All ranks do all of the work, so products do so only where
//! it is little. What is added to sums and is no sum, such as a bias, is divided among the ranks.
//!
//! | tensor or operator | partial sums |
//! | --- | --- |
//! | a number that totals alone read | always, along all axes |
//! | a sum over a factor that an addition or one of the operators below reads | where cheaper |
//! | an addition; a combination of such sums: scaled, added and subtracted | where cheaper |
//! | the sum of the gradients of several steps, which is kept between them | where cheaper |
//! | a change of shape, slice, pad with zeros or concatenation of such sums \* | where cheaper |
//! | a linear map, a sum over dims or a light product of such sums \* | where cheaper |
//! | everything else, such as a convolution or a heavy product of such a sum | never |
//!
//! \* If its result is smaller, or another one of these operators reads it, and if nothing else
//! reads the sums, or if they are read index by index of a dim, such as that of queries, keys and
//! values. Whole operands that it adds to sums have fewer elements than its result.
//!
//! *Light* products are the cheapest of those that may read terms, such as those of low-rank
//! adapters. If every rank does all the work of all of them, that adds at most
//! [`Network::light_work`] to the work of a step. In training, the gradient of the other operand
//! reads the sum, too, so it stays whole unless that operand has no gradient. Linear maps stand
//! alone where fusion leaves them so; those between sums and an addition become part of a
//! combination (`additions.rs`).
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
    operators::{accumulate::Accumulate, combines_terms, contract::Contract, total::Total},
    signature::{FactorId, Signature, factor_id, terms},
    value::Value,
};

/// The most work of light products that ranks repeat, over that of a step on one device. Padding
/// leaves less.
pub(crate) const LIGHT_WORK: f64 = 0.04;

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
    /// For each tensor, the terms on which its operator may work, in increasing order.
    pub(crate) terms: Vec<Vec<FactorId>>,
}

impl PartialSums {
    /// Returns those of a network on so many ranks.
    pub(crate) fn of(network: &Network, n_ranks: usize) -> Self {
        let sums = Sums::of(network, n_ranks);
        let graph = &network.graph;
        let mut idle = vec![Idle::Replicated; graph.n_values()];
        let mut all = vec![Vec::new(); graph.n_values()];
        // For each tensor, whether an operator may read terms of it.
        let mut is_read_so = vec![false; graph.n_values()];
        // Readers come after what they read.
        for value in graph.values().rev() {
            let users = graph.users(value);
            let is_total = |it: &Value| graph.operator_as::<Total>(*it).is_some();
            let is_of_totals = !users.is_empty() && users.iter().all(is_total);
            let at = value.index();
            let is_number = graph.shape(value).is_empty();
            if is_number
                && is_of_totals
                && is_combined_by_sum(graph, value)
                && !sums.is_bound(value)
            {
                idle[at] = Idle::Partial;
            }
            if is_read_so[at] && sums.is_sum[at] && !sums.is_bound(value) {
                idle[at] = Idle::Either;
            }
            if !sums.is_sum[at] {
                continue;
            }
            let is_passed_on = idle[at] == Idle::Either;
            for (set, operands) in sums.linear[at].iter().enumerate().rev() {
                if sums.is_useful(value, operands, is_passed_on) {
                    let values = graph.operands(value);
                    operands.iter().for_each(|it| is_read_so[values[*it].index()] = true);
                    all[at].push(terms(set));
                }
            }
        }
        Self { idle, terms: all }
    }
}

/// The sums of a network.
struct Sums<'a> {
    graph: &'a Graph,
    roots: BTreeSet<Value>,
    /// Marks the tensors that operators can give as partial sums. The sum of the gradients of
    /// several steps is one if their gradients are.
    is_sum: Vec<bool>,
    /// For each tensor, the sets of operands whose terms its operator can read; empty where these
    /// are no sums.
    linear: Vec<Vec<Vec<usize>>>,
}

impl<'a> Sums<'a> {
    fn of(network: &'a Network, n_ranks: usize) -> Self {
        let graph = &network.graph;
        let roots: BTreeSet<Value> = network.roots().into_iter().collect();
        let signatures: Vec<Option<Signature>> = graph
            .values()
            .map(|it| Some(graph.operator(it)?.signature(&graph.operand_shapes(it))))
            .collect();
        let is_light = light_products(network, &roots, &signatures, n_ranks);
        let (mut is_sum, mut linear) = (vec![false; graph.n_values()], Vec::new());
        for value in graph.values() {
            let Some(signature) = &signatures[value.index()] else {
                linear.push(Vec::new());
                continue;
            };
            let operator = graph.operator(value).expect("it has a signature");
            let is_heavy = operator.is::<Contract>() && !is_light[value.index()];
            let operands = graph.operands(value);
            let is_sum_at = |at: &usize| is_sum[operands[*at].index()];
            let n_elements = |it: Value| graph.shape(it).n_elements();
            let is_less = |at: &usize| n_elements(operands[*at]) < n_elements(value);
            let is_read_so = |set: &[usize]| {
                let mut others = set.iter().filter(|at| !is_sum_at(at));
                keeps_types(graph, value, set)
                    && set.iter().any(is_sum_at)
                    && (adds_terms(operator) || !is_heavy && others.all(is_less))
            };
            let kept = |set: &Vec<usize>| if is_read_so(set) { set.clone() } else { Vec::new() };
            let sets: Vec<Vec<usize>> = signature.linear.iter().map(kept).collect();
            is_sum[value.index()] = adds_up(signature) || sets.iter().any(|it| !it.is_empty());
            linear.push(sets);
        }
        for sum in &network.gradient_sums {
            is_sum[sum.state.index()] = is_sum[sum.next.index()];
        }
        Self { graph, roots, is_sum, linear }
    }

    fn is_bound(&self, value: Value) -> bool {
        is_bound(self.graph, &self.roots, value)
    }

    /// Returns whether an operator may work on terms of these operands. Additions always may. The
    /// others must pass the terms on, or give less than they read, and no reader of the sums may
    /// need them whole.
    fn is_useful(&self, value: Value, set: &[usize], is_passed_on: bool) -> bool {
        if set.is_empty() || self.graph.operator(value).is_some_and(adds_terms) {
            return !set.is_empty();
        }
        let operands = self.graph.operands(value);
        let is_sum = |it: &Value| self.is_sum[it.index()];
        let read: BTreeSet<Value> = set.iter().map(|it| operands[*it]).filter(is_sum).collect();
        let is_less = self.bytes(value) < read.iter().map(|it| self.bytes(*it)).sum();
        let is_of_numbers = read.iter().all(|it| self.graph.shape(*it).is_empty());
        read.iter().all(|it| self.is_read_in_parts(*it))
            && (is_passed_on || is_less && !is_of_numbers)
    }

    /// Returns whether a sum has one reader, or several of which each may read terms of one index
    /// of a dim. Ranges of a dim, such as the halves of queries, can be split like the dim instead.
    fn is_read_in_parts(&self, sum: Value) -> bool {
        let users = self.graph.users(sum);
        let reads_terms = |user: &Value| {
            let operands = self.graph.operands(*user);
            let sets = &self.linear[user.index()];
            sets.iter().flatten().any(|it| operands[*it] == sum)
        };
        let has_one_index = |user: &Value| {
            let [part, whole] = [*user, sum].map(|it| self.graph.shape(it));
            let is_one_or_all = |(part, whole): (&usize, &usize)| *part == 1 || part == whole;
            part.len() == whole.len()
                && part != whole
                && part.iter().zip(whole.iter()).all(is_one_or_all)
        };
        let are_parts = || users.iter().all(|it| has_one_index(it) && reads_terms(it));
        !self.is_bound(sum) && (users.len() == 1 || are_parts())
    }

    fn bytes(&self, value: Value) -> usize {
        let node = self.graph.node(value);
        node.shape.n_elements() * node.dtype.bytes()
    }
}

/// Marks the light products: the cheapest ones that may read terms, as long as all of them repeat
/// no more work than the network allows if every rank does all of it. Of equally cheap ones, all
/// are light or none is.
fn light_products(
    network: &Network,
    roots: &BTreeSet<Value>,
    signatures: &[Option<Signature>],
    n_ranks: usize,
) -> Vec<bool> {
    let graph = &network.graph;
    let may_read_terms = |value: &Value| {
        let operands = graph.operands(*value);
        let is_computed_for_it = |at: &usize| {
            graph.operator(operands[*at]).is_some() && is_own(graph, roots, operands[*at])
        };
        let is_open = |set: &Vec<usize>| {
            keeps_types(graph, *value, set) && set.iter().all(is_computed_for_it)
        };
        let of = |it: &Signature| it.linear.iter().any(is_open);
        graph.operator_as::<Contract>(*value).is_some()
            && signatures[value.index()].as_ref().is_some_and(of)
    };
    let weights = network.weights();
    // Products of evaluations alone count as if each step had them.
    let work = |it: Value| graph.flops(it) as f64 * weights.of_value(it).max(1) as f64;
    let mut products: Vec<(Value, f64)> =
        graph.values().filter(may_read_terms).map(|it| (it, work(it))).collect();
    products.sort_by(|one, other| one.1.total_cmp(&other.1));
    let all_work: f64 = network.operations_of_values().iter().sum();
    let limit = network.light_work * all_work;
    let mut is_light = vec![false; graph.n_values()];
    let mut repeated = 0.0;
    for equal in products.chunk_by(|one, other| one.1.total_cmp(&other.1).is_eq()) {
        repeated += equal.iter().map(|it| it.1).sum::<f64>() * n_ranks.saturating_sub(1) as f64;
        if repeated > limit {
            break;
        }
        equal.iter().for_each(|it| is_light[it.0.index()] = true);
    }
    is_light
}

/// Returns whether a tensor is a result of a step, or pinned.
fn is_bound(graph: &Graph, roots: &BTreeSet<Value>, value: Value) -> bool {
    roots.contains(&value) || graph.node(value).pinned.is_some()
}

/// Returns whether one operator reads a tensor, and nothing else needs it.
fn is_own(graph: &Graph, roots: &BTreeSet<Value>, value: Value) -> bool {
    graph.users(value).len() == 1 && !is_bound(graph, roots, value)
}

/// Returns whether an operator adds up what may be partial sums.
fn adds_terms(operator: &Operator) -> bool {
    operator.is::<Accumulate>() || combines_terms(operator)
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

/// Returns whether a tensor is as exact as these operands of its operator, so that no term is
/// rounded more often than the sum.
pub(crate) fn keeps_types(graph: &Graph, value: Value, set: &[usize]) -> bool {
    let (dtype, operands) = (graph.node(value).dtype, graph.operands(value));
    let is_kept = |at: &usize| match (graph.node(operands[*at]).dtype, dtype) {
        (DType::F32, DType::F32) | (DType::Bf16, DType::F32 | DType::Bf16) => true,
        (DType::F32, DType::Bf16) | (DType::I32, _) | (_, DType::I32) => false,
    };
    set.iter().all(is_kept)
}
