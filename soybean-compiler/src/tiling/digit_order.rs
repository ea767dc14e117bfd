//! Which axes take the first digits of which extents.
//!
//! A split of `[12, 64]` by its first dim is a split of the flat dim of 768 only along the axes that take a digit of 12 each ([`soybean_plan::Tile`]): at most two of size 2. So
//! a batch of 8 and 12 heads on 32 ranks should not both begin with the first axis. Extents that are parts of one another begin
//! alike. The groups of extents that have too few digits take axes of their own, from the last axis on; the first ones are left to the batch.

use std::collections::BTreeMap;

use soybean_plan::{Mesh, Tiling};

use crate::{network::Network, signature::Dim, value::Value};

/// The mesh with the axes in an order that suits the network's extents, if it allows what users pin.
pub(super) fn with_digit_order(network: &Network, mesh: Mesh) -> Mesh {
    // A mesh that has turns is that of a plan, and keeps them. An axis of another size could take a digit of the whole before those of the part, which the
    // part has not.
    if mesh.turns().next().is_some() || mesh.sizes().any(|it| it != mesh.size(0)) {
        return mesh;
    }
    let pairs = flattened(network);
    let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
    for &(outer, whole) in &pairs {
        let [one, other] = [outer, whole].map(|it| group_of.get(&it).copied().unwrap_or(it));
        let (least, most) = (usize::min(one, other), usize::max(one, other));
        group_of.entry(outer).or_insert(least);
        group_of.entry(whole).or_insert(least);
        group_of.values_mut().filter(|it| **it == most).for_each(|it| *it = least);
    }
    let mut starts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut end = mesh.n_axes();
    for &(outer, _) in &pairs {
        let group = group_of[&outer];
        let members = pairs.iter().map(|it| it.0).filter(|it| group_of[it] == group);
        let n_digits =
            members.map(|it| mesh.axes_with_digits(it).iter().count()).min().unwrap_or(0);
        if (1..mesh.n_axes()).contains(&n_digits) && !starts.contains_key(&group) {
            end = if end >= n_digits { end - n_digits } else { mesh.n_axes() - n_digits };
            starts.insert(group, end);
        }
    }
    let start = |(extent, group): (&usize, &usize)| Some((*extent, *starts.get(group)?));
    let turns = group_of.iter().filter_map(start).filter(|it| it.1 > 0);
    let turned = turns.fold(mesh, |mesh, (extent, axis)| mesh.turned(extent, axis));
    // A pin that tells axes apart says itself which extent begins with which.
    let is_kept = |tiling: Tiling| tiling.placements().windows(2).all(|pair| pair[0] == pair[1]);
    let is_allowed = |it: &Value| network.pin(*it, &turned).is_some_and(is_kept);
    if network.pins().iter().all(is_allowed) { turned } else { mesh }
}

/// The extents of dims of which an operator splits the outermost part, each with that part's, in the order in which the network has them.
fn flattened(network: &Network) -> Vec<(usize, usize)> {
    let graph = &network.graph;
    let mut pairs = Vec::new();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let signature = operator.signature(&graph.operand_shapes(value));
        for Dim { extent, factor } in signature.operands.iter().chain([&signature.result]).flatten()
        {
            let Some(factor) = factor else { continue };
            let outer = signature.factors[*factor as usize];
            if outer != *extent {
                super::number(&mut pairs, (outer, *extent));
            }
        }
    }
    pairs
}
