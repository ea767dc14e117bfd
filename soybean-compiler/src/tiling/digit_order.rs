//! The digit order of extents: which mesh axes take the first digits of an index.
//!
//! Tiles split an index into mixed-radix digits ([`soybean_plan::Tile`]; Knuth, The Art of Computer
//! Programming 2, 4.1). A split of `[12, 64]` by its first dim also splits the flattened dim of
//! 768, but only along axes that take a digit of 12. These are at most two axes of size 2. So a
//! batch of 8 and 12 heads on 32 ranks should not both begin with the first axis.
//!
//! An extent and its parts begin with the same axis. Groups of extents with too few digits for all
//! axes get axes from the last one on; the first ones are left to the batch.

use std::collections::BTreeMap;

use soybean_plan::{Mesh, Tiling};

use crate::{network::Network, signature::Dim, value::Value};

/// Returns the mesh with a digit order that suits the network's extents, if the users' pins allow
/// it.
pub(super) fn with_digit_order(network: &Network, mesh: Mesh) -> Mesh {
    // A mesh with a digit order comes from a plan and keeps it. If axes differ in size, an axis
    // could take a digit of the whole extent before those of its part, which lacks that digit.
    if mesh.first_axes().next().is_some() || mesh.sizes().any(|it| it != mesh.size(0)) {
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
    let first_axes = group_of.iter().filter_map(start).filter(|it| it.1 > 0);
    let ordered = first_axes.fold(mesh, |mesh, (extent, axis)| mesh.with_first_axis(extent, axis));
    // A pin that distinguishes axes already determines their order.
    let is_kept = |tiling: Tiling| tiling.placements().windows(2).all(|pair| pair[0] == pair[1]);
    let is_allowed = |it: &Value| network.pin(*it, &ordered).is_some_and(is_kept);
    if network.pins().iter().all(is_allowed) { ordered } else { mesh }
}

/// Returns the extents of dims whose outermost part an operator splits, each with that part, in the
/// order of the network.
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
