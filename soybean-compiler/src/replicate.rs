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
    network::Network, operators::replica::Replica, rewrite::rewrite, tiling::TiledNetwork,
    value::Value,
};

/// Adds replicas to a network. A network that has them is returned unchanged.
#[must_use]
pub fn replicate(network: &Network) -> Network {
    let next = network.next_values();
    let has_replica = having_replicas(network, &next);
    let mut replicas: BTreeMap<Value, Value> = BTreeMap::new();
    rewrite(network, |rewriter, value| {
        let old = rewriter.old;
        let Some(operator) = old.operator(value) else { return Some(rewriter.copy(value)) };
        // A replica is added right before its first reader, which keeps its life short.
        let mut operands = rewriter.operands(value);
        for (new, it) in operands.iter_mut().zip(old.operands(value)) {
            if has_replica[it.index()] && !next.contains(&value) {
                *new = *replicas.entry(it).or_insert_with(|| {
                    rewriter.graph.set_origin(old.node(it).origin);
                    rewriter.graph.add(Replica.into(), &[*new])
                });
            }
        }
        Some(rewriter.add_like(old.node(value), operator.clone(), &operands))
    })
}

/// Removes the replicas that have the tilings of their tensors.
#[must_use]
pub(crate) fn without_idle_replicas(tiled: &TiledNetwork) -> TiledNetwork {
    let graph = &tiled.network.graph;
    let is_idle = |value: Value| {
        graph.is_replica(value) && tiled.conversions(value).iter().all(|it| it.from == it.to)
    };
    let (mut tilings, mut forms) = (Vec::new(), Vec::new());
    let network = rewrite(&tiled.network, |rewriter, value| {
        if is_idle(value) {
            return Some(rewriter.operands(value)[0]);
        }
        tilings.push(tiled.tilings[value.index()]);
        forms.push(tiled.forms[value.index()].clone());
        Some(rewriter.copy(value))
    });
    TiledNetwork { network, mesh: tiled.mesh, tilings, forms }
}

/// Which tensors have a copy: those with a bound tiling that are read twice or more besides their updates. One reader can convert for itself.
fn having_replicas(network: &Network, next: &BTreeSet<Value>) -> Vec<bool> {
    let graph = &network.graph;
    let mut is_bound: Vec<bool> =
        graph.values().map(|it| graph.node(it).pinned.is_some()).collect();
    for (source, _) in &network.updates {
        is_bound[source.index()] = true;
    }
    let has_replica = |value: Value| {
        let n_uses = graph.users(value).iter().filter(|it| !next.contains(it)).count();
        is_bound[value.index()] && !graph.shape(value).is_empty() && n_uses >= 2
    };
    graph.values().map(has_replica).collect()
}
