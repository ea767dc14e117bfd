//! The digit order of extents: which mesh axes take the first digits of an index.
//!
//! Tiles split an index into mixed-radix digits ([`soybean_plan::Tile`]; Knuth, The Art of Computer
//! Programming 2, 4.1). A split of `[12, 64]` by its first dim also splits the flattened dim of
//! 768, but only along axes that take a digit of 12. These are at most two axes of size 2. So a
//! batch of 8 and 12 heads on 32 ranks should not both begin with the first axis.
//!
//! An extent and its parts begin with the same axis. Groups of extents with too few digits for all
//! axes get axes from the last one on; the first ones are left to the batch.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{Mesh, Tiling, carried_axes};

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

/// Returns the mesh with the order of its prime sizes that suits the network's extents best, if no
/// pin tells axes apart.
///
/// In `[2, 2, 2, 3]`, a dim of 768 gives three digits to axes of size 2 before that of size 3. 12
/// heads give only two, so their split by 3 is none of the 768 features. In `[3, 2, 2, 2]` it is.
pub(super) fn with_axis_order(network: &Network, mesh: Mesh) -> Mesh {
    let sizes: Vec<usize> = mesh.sizes().collect();
    let primes: BTreeSet<usize> = sizes.iter().copied().collect();
    if primes.len() < 2 || mesh.first_axes().next().is_some() || !network.pins().is_empty() {
        return mesh;
    }
    let pairs = flattened(network);
    let n_carried = |mesh: &Mesh| -> usize {
        let of_pair = |&(outer, whole): &(usize, usize)| {
            let carried = carried_axes(outer, whole, mesh);
            mesh.axes_with_digits(outer).iter().filter(|it| carried.contains(*it)).count()
        };
        pairs.iter().map(of_pair).sum()
    };
    // Moving one prime to the front reaches all orders of two primes, and half of those of three.
    let with_first = |prime: &usize| {
        let (first, rest): (Vec<usize>, Vec<usize>) = sizes.iter().partition(|it| *it == prime);
        Mesh::of(&[first, rest].concat())
    };
    let orders = primes.iter().map(with_first);
    orders.fold(mesh, |best, it| if n_carried(&it) > n_carried(&best) { it } else { best })
}

/// Returns the extents of dims whose outermost part an operator splits, each with that part, in the
/// order of the network.
fn flattened(network: &Network) -> Vec<(usize, usize)> {
    let graph = &network.graph;
    let mut pairs = Vec::new();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let signature = operator.signature(&graph.operand_shapes(value));
        let dims = signature.operands.iter().chain([&signature.result]).flatten();
        // Windows move along few of the dims, whose parts are blocks in any order of the axes.
        for Dim { extent, factor, .. } in dims.filter(|it| it.halo.is_none()) {
            let Some(factor) = factor else { continue };
            let outer = signature.factors[*factor as usize];
            if outer != *extent {
                super::number(&mut pairs, (outer, *extent));
            }
        }
    }
    pairs
}
