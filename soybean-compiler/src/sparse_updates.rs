//! Sparse updates: an embedding table and its optimizer's states are updated in place in the rows
//! that the batch looked up, and the gradient of the table is never stored.
//!
//! This leaves all results as they are if the other rows stay the same where their gradient is 0.
//! It holds for plain gradient descent, Adagrad and lazy Adam, but not with momentum, decay or the
//! moving means of other optimizers. The scalar programs of the updates show it. The gradient may
//! have no other reader, such as the norm of all gradients or a sum over several steps.
//!
//! Ranks need the indices and gradients of all rows that were looked up, instead of sums over the
//! table. That takes no more bytes if the batch has fewer indices than the table has rows.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{EmbeddingForm, Mode};

use crate::{
    graph::Graph,
    network::Network,
    operators::{
        elementwise::{Elementwise, all_dims},
        embed::Embed,
        embed_update::EmbedUpdate,
        replica::Replica,
    },
    rewrite::rewrite,
    scalar::{self, Known, Sign},
    signature::factor_id,
    value::Value,
};

/// The updates of a table and its optimizer's states.
struct TableUpdate<'a> {
    /// The gradient of the table.
    gradient: Value,
    /// Pairs of source and next value.
    next: &'a [(Value, Value)],
}

/// Replaces the updates of embedding tables by sparse ones, where these have the same results.
#[must_use]
pub fn with_sparse_updates(network: Network) -> Network {
    if network.mode() == Mode::Inference {
        return network;
    }
    let roots: BTreeSet<Value> = network.roots().into_iter().collect();
    let groups = network.update_groups();
    let is_free = |it: &TableUpdate<'_>| !roots.contains(&it.gradient);
    let updates: Vec<TableUpdate<'_>> = groups
        .iter()
        .filter_map(|it| TableUpdate::new(&network.graph, it))
        .filter(is_free)
        .collect();
    match updates.is_empty() {
        true => network,
        false => rewritten(&network, &updates),
    }
}

/// Replaces these updates.
fn rewritten(network: &Network, updates: &[TableUpdate<'_>]) -> Network {
    let gradients: BTreeSet<Value> = updates.iter().map(|it| it.gradient).collect();
    let by_next: BTreeMap<Value, &TableUpdate<'_>> =
        updates.iter().flat_map(|it| it.next.iter().map(move |next| (next.1, it))).collect();
    let mut shared: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    rewrite(network, |rewriter, value| {
        if gradients.contains(&value) {
            let operands = rewriter.operands(value);
            shared.insert(value, operands);
            return None;
        }
        let Some(update) = by_next.get(&value) else { return Some(rewriter.copy(value)) };
        let looked_up = shared.get_mut(&update.gradient).expect("updates follow their gradient");
        // The updates of a table and its states read the same indices and gradients, which ranks
        // exchange once.
        for operand in &mut looked_up[..2] {
            if update.next.len() > 1 && !rewriter.graph.is_replica(*operand) {
                *operand = rewriter.graph.add(Replica.into(), &[*operand]);
            }
        }
        let (operator, sources) = update.operator(rewriter.old, value);
        let sources = sources.iter().map(|it| rewriter.replacement(*it).expect("a source"));
        let operands: Vec<Value> = looked_up.iter().copied().chain(sources).collect();
        Some(rewriter.graph.add_like(rewriter.old.node(value), operator.into(), &operands))
    })
}

impl<'a> TableUpdate<'a> {
    /// Returns the update of a table if it may be sparse.
    fn new(graph: &Graph, next: &'a [(Value, Value)]) -> Option<Self> {
        let (table, first) = *next.first()?;
        let is_gradient = |it: &Value| {
            let embed = graph.operator_as::<Embed>(*it);
            embed.is_some_and(|it| it.form == EmbeddingForm::ScatterAdd)
        };
        let gradient = graph.operands(first).into_iter().find(is_gradient)?;
        let update = Self { gradient, next };
        let has_few_indices = {
            let indices = graph.operands(gradient)[0];
            graph.shape(indices).n_elements() < graph.shape(table)[0]
        };
        let is_next = |it: &Value| next.iter().any(|next| next.1 == *it);
        let has_other_readers = !graph.users(gradient).iter().all(is_next);
        let is_sparse = has_few_indices
            && !has_other_readers
            && next.iter().all(|it| update.is_elementwise(graph, it.1))
            && update.keeps_other_rows(graph);
        is_sparse.then_some(update)
    }

    /// Returns whether a next value is a map of the gradient and of what is updated, element by
    /// element.
    fn is_elementwise(&self, graph: &Graph, next: Value) -> bool {
        let Some(map) = graph.operator_as::<Elementwise>(next) else { return false };
        let is_own = |it: Value| it == self.gradient || self.next.iter().any(|next| next.0 == it);
        graph.node(next).pinned.is_none()
            && graph.operands(next).into_iter().all(is_own)
            && map.operands.iter().all(|it| *it == all_dims(&map.extents))
            && map.extents == graph.shape(self.gradient)
    }

    /// Returns whether all elements stay the same where the gradient is 0.
    fn keeps_other_rows(&self, graph: &Graph) -> bool {
        let finite = Known::Finite(Sign::Any);
        // States start at 0. If no update makes one negative, none ever is.
        let not_negative = Known::Finite(Sign::NotNegative);
        let known = |next: Value, gradient: Known, of_states: Known| -> Vec<Known> {
            let of_operand = |it: Value| match it {
                it if it == self.gradient => gradient,
                it if it == self.next[0].0 => finite,
                _ => of_states,
            };
            graph.operands(next).into_iter().map(of_operand).collect()
        };
        let program = |next: Value| {
            &graph.operator_as::<Elementwise>(next).expect("the updates are maps").program
        };
        let is_never_negative = |&(_, next): &(Value, Value)| {
            let result = scalar::known_result(program(next), &known(next, finite, not_negative));
            result.or(not_negative) == not_negative
        };
        let are_never_negative = self.next[1..].iter().all(is_never_negative);
        let of_states = if are_never_negative { not_negative } else { finite };
        let keeps = |&(source, next): &(Value, Value)| {
            let operands = graph.operands(next);
            let Some(kept) = operands.iter().position(|it| *it == source) else { return false };
            let known = known(next, Known::Value(0.0), of_states);
            scalar::keeps_input(program(next), factor_id(kept), &known)
        };
        self.next.iter().all(keeps)
    }

    /// Returns the operator of a next value, with the tensors that it reads besides indices and
    /// gradients.
    fn operator(&self, graph: &Graph, next: Value) -> (EmbedUpdate, Vec<Value>) {
        let (source, _) = *self.next.iter().find(|it| it.1 == next).expect("one of the updates");
        let operands = graph.operands(next);
        let others = operands.iter().filter(|it| **it != source && **it != self.gradient);
        let mut sources = vec![source];
        others.for_each(|it| {
            if !sources.contains(it) {
                sources.push(*it);
            }
        });
        let place = |it: &Value| match sources.iter().position(|source| source == it) {
            Some(at) => factor_id(at + 1),
            None => 0,
        };
        let map = graph.operator_as::<Elementwise>(next).expect("the updates are maps");
        let numbers: Vec<u8> = operands.iter().map(place).collect();
        let program = scalar::renumber(&map.program, &numbers);
        let vocabulary = graph.shape(source)[0];
        (EmbedUpdate { vocabulary, program }, sources)
    }
}
