//! Simplification: removes dead tensors, copies and repeated work, lets products read permuted
//! operands and write permuted results in place, turns sums of padded parts into concatenations,
//! masks and sums the gradients of pooled pixels instead of those of all pixels, and lets attention
//! in windows read all keys beside attention without windows.

mod halos;
mod permutations;
mod pooling;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    graph::{Graph, Source},
    network::Network,
    operator::Operator,
    operators::{attend::Attend, elementwise::Elementwise},
    pin::Pin,
    rewrite::rewrite,
    value::Value,
};

/// Removes dead tensors and repeated work. Inputs and parameters stay, used or not.
#[must_use]
pub fn simplify(network: &Network) -> Network {
    let simplified = without_repetitions(network);
    // Products that are repeated have one reader each, and only without repetitions several.
    match permutations::with_results_in_place(&simplified) {
        Some(changed) => without_repetitions(&changed),
        None => simplified,
    }
}

fn without_repetitions(network: &Network) -> Network {
    let simplified = pass(network);
    // The next pass removes tensors that have lost their last reader.
    let is_done = simplified.graph.n_values() == network.graph.n_values() && !has_dead(&simplified);
    if is_done { simplified } else { without_repetitions(&simplified) }
}

fn has_dead(network: &Network) -> bool {
    let is_live = network.graph.ancestors(&network.roots());
    network.graph.values().any(|it| network.graph.operator(it).is_some() && !is_live[it.index()])
}

fn pass(network: &Network) -> Network {
    let roots: BTreeSet<Value> = network.roots().into_iter().collect();
    let is_live = network.graph.ancestors(&network.roots());
    let next_values: BTreeSet<Value> = network.replacements().map(|it| it.1).collect();
    let balanced = Attend::balanced_sequences(&network.graph);
    let (mut computed, mut taken) = (Computed::default(), BTreeSet::new());
    rewrite(network, |rewriter, value| {
        let node = rewriter.old.node(value);
        let Source::Operator(operator) = &node.source else { return Some(rewriter.copy(value)) };
        if !is_live[value.index()] {
            return None;
        }
        if let Some(map) = operator.downcast_ref::<Elementwise>()
            && node.pinned.is_none()
            && !roots.contains(&value)
            && let Some(masked) = pooling::masked_after(rewriter, value, map)
        {
            return Some(masked);
        }
        let operands = rewriter.operands(value);
        let operator = halos::dropped(operator, &balanced);
        let graph = &mut rewriter.graph;
        if let Some(map) = operator.downcast_ref::<Elementwise>()
            && node.pinned.is_none()
            && !roots.contains(&value)
            && let [operand] = operands[..]
            && map.is_identity(graph.node(operand).dtype)
        {
            return Some(operand);
        }
        if let Some(map) = operator.downcast_ref::<Elementwise>()
            && node.pinned.is_none()
            && let Some(joined) = windows::joined(graph, map, &operands)
        {
            return Some(joined);
        }
        let (operator, operands) = permutations::with_operands_in_place(graph, operator, operands);
        let (operator, operands) = pooling::summed_before(graph, operator, operands);
        let new = computed.value(graph, operator.clone(), operands.clone(), node.pinned);
        // Two tensors that are kept from step to step need next values of their own.
        if next_values.contains(&value) && !taken.insert(new) {
            return Some(graph.add_like(node, operator, &operands));
        }
        Some(new)
    })
}

/// The tensors computed so far, by their operands.
#[derive(Default)]
struct Computed(BTreeMap<Vec<Value>, Vec<Value>>);

impl Computed {
    /// Returns the operator's result, added to the graph unless an equal one with the same pin
    /// exists.
    fn value(
        &mut self,
        graph: &mut Graph,
        operator: Operator,
        operands: Vec<Value>,
        pinned: Option<Pin>,
    ) -> Value {
        // Numbers that compare equal need not be the same: 0 and -0.
        let is_same =
            |it: &Operator| *it == operator && format!("{it:?}") == format!("{operator:?}");
        let found = self.0.get(&operands).and_then(|known| {
            let is_alike = |it: &Value| graph.node(*it).pinned == pinned;
            let mut alike = known.iter().copied().filter(is_alike);
            alike.find(|&it| graph.operator(it).is_some_and(is_same))
        });
        found.unwrap_or_else(|| {
            let new = graph.add(operator, &operands);
            graph.node_mut(new).pinned = pinned;
            self.0.entry(operands).or_default().push(new);
            new
        })
    }
}
