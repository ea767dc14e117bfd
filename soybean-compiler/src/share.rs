//! Working copies: a tensor whose stored tiling is bound, because it stays from step to step or a user pins it, may lie in a second tiling for those who read it.
//!
//! A copy is an operator that gives its operand in a tiling of its own ([`Share`]), and all readers but the tensor's update read the copy. So a parameter that is stored
//! in parts is gathered once a step, for products forward and backward, and not once for each. Where the copy's tiling is the tensor's nothing happens: the best plan with
//! copies is never dearer than the best one without. Costs stay pairwise, and neither search nor program knows of more than one operator more.
//!
//! Other tensors need none: their stored tiling is chosen for their readers alone, and a second one for some of them saved nothing on any network that was
//! measured (`docs/planner.md`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    graph::Graph, network::Network, operators::replica::Replica, tiling::Tiled, value::Value,
};

/// The network with working copies; one that has them stays as it is.
#[must_use]
pub(crate) fn shared(network: &Network) -> Network {
    let old = &network.graph;
    let next = network.next_values();
    let has_copy = having_copies(network, &next);
    let mut graph = Graph::default();
    let mut of: BTreeMap<Value, Value> = BTreeMap::new();
    let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
    for value in old.values() {
        let node = old.node(value);
        graph.set_origin(node.origin);
        let Some(operator) = old.operator(value) else {
            of.insert(value, graph.add_copy(node));
            continue;
        };
        // Copies stand right before their first readers, so that they lie in memory no longer than need be.
        let mut operand = |it: Value| match has_copy[it.index()] && !next.contains(&value) {
            true => *copies.entry(it).or_insert_with(|| {
                graph.set_origin(old.node(it).origin);
                graph.add(Replica.into(), &[of[&it]])
            }),
            false => of[&it],
        };
        let operands: Vec<Value> = old.operands(value).into_iter().map(&mut operand).collect();
        of.insert(value, graph.add_like(node, operator.clone(), &operands));
    }
    network.moved(graph, &of)
}

/// The plan without the copies that lie as their tensors do: they are the tensors.
#[must_use]
pub(crate) fn settled(tiled: &Tiled) -> Tiled {
    let old = &tiled.network.graph;
    let is_idle = |value: Value| {
        old.is_copy(value) && tiled.conversions(value).iter().all(|it| it.from == it.to)
    };
    let mut graph = Graph::default();
    let mut of: BTreeMap<Value, Value> = BTreeMap::new();
    let (mut tilings, mut forms) = (Vec::new(), Vec::new());
    for value in old.values() {
        let operands: Vec<Value> = old.operands(value).iter().map(|it| of[it]).collect();
        if is_idle(value) {
            of.insert(value, operands[0]);
            continue;
        }
        let node = old.node(value);
        graph.set_origin(node.origin);
        let new = match old.operator(value) {
            Some(operator) => graph.add_like(node, operator.clone(), &operands),
            None => graph.add_copy(node),
        };
        of.insert(value, new);
        tilings.push(tiled.tilings[value.index()]);
        forms.push(tiled.forms[value.index()].clone());
    }
    Tiled { network: tiled.network.moved(graph, &of), mesh: tiled.mesh, tilings, forms }
}

/// Which tensors have a copy: those with a bound tiling that are read twice or more besides their updates. One reader can convert for itself.
fn having_copies(network: &Network, next: &BTreeSet<Value>) -> Vec<bool> {
    let graph = &network.graph;
    let mut is_bound: Vec<bool> =
        graph.values().map(|it| graph.node(it).pinned.is_some()).collect();
    for (source, _) in &network.updates {
        is_bound[source.index()] = true;
    }
    let has_copy = |value: Value| {
        let n_uses = graph.users(value).iter().filter(|it| !next.contains(it)).count();
        is_bound[value.index()] && !graph.shape(value).is_empty() && n_uses >= 2
    };
    graph.values().map(has_copy).collect()
}
