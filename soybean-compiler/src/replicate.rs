//! Replicas: a second tiling for the readers of a tensor whose stored tiling is fixed, because it
//! is kept from step to step or pinned.
//!
//! A replica is an operator that returns its operand in a tiling of its own ([`Replica`]). All
//! readers but the tensor's update read the replica. A parameter that is stored split is then
//! gathered once a step, not once for each product. A replica with the tensor's own tiling costs
//! nothing, so the best plan with replicas never costs more than the best one without. Costs stay
//! pairwise, and the search and the program know one more operator, nothing else.
//!
//! Other tensors need none: their stored tiling is chosen for their readers alone. A second tiling
//! saved nothing on any network that was measured (`docs/planner.md`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    kept_halos::kept_halos, network::Network, operators::replica::Replica, rewrite::rewrite,
    tiling::TiledNetwork, value::Value,
};

/// Adds replicas to a network, in which ranks also keep halos. A network that has them is returned
/// unchanged.
#[must_use]
pub fn replicate(network: &Network) -> Network {
    let next = network.next_values();
    let has_replica = having_replicas(network, &next);
    let mut replicas: BTreeMap<Value, Value> = BTreeMap::new();
    let replicated = rewrite(network, |rewriter, value| {
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
        Some(rewriter.graph.add_like(old.node(value), operator.clone(), &operands))
    });
    Network { kept_halos: kept_halos(&replicated), ..replicated }
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

/// Marks the tensors with a replica: those with a fixed tiling and at least two readers besides
/// their updates. A single reader can convert the tensor for itself.
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
