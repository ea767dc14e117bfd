//! The digit order of extents: which mesh axes take the first digits of an index.
//!
//! Tiles split an index into mixed-radix digits ([`soybean_plan::Tile`]; Knuth, The Art of Computer
//! Programming 2, 4.1). A split of `[12, 64]` by its first dim also splits the flattened dim of
//! 768, but only along axes that take a digit of 12. These are at most two axes of size 2. So a
//! batch of 8 and 12 heads on 32 ranks should not both begin with the first axis.
//!
//! A dim may also consist of equal parts one after another, such as the queries, keys and values
//! that one product gives. If axes split each part, the parts are split like the dim, so a slice
//! moves nothing.
//!
//! Causal attention has the more work, the later its queries are. Where digits suffice, sequences
//! of such queries are balanced: each rank has ranges from all over them. Ranks that read halos of
//! keys have blocks instead, and about equal work without balance.
//!
//! An extent and its parts begin with the same axis. Groups of extents with too few digits for all
//! axes get axes from the last one on; the first ones are left to the batch.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{DigitOrder, Mesh, Place, Tiling, carried_axes};

use crate::{network::Network, operators::attend::Attend, signature::Dim, value::Value};

/// Returns the mesh with a digit order that suits the network's extents, if the users' pins allow
/// it.
pub(super) fn with_digit_order(network: &Network, mesh: Mesh) -> Mesh {
    // A mesh with a digit order comes from a plan and keeps it.
    if mesh.n_ranks() == 1 || mesh.digit_orders().next().is_some() {
        return mesh;
    }
    let pairs = partial_factors(network);
    let first_axes = first_axes(&pairs, &mesh);
    let balanced = balanced(network, &pairs, &mesh);
    let mut extents: BTreeSet<usize> = pairs.iter().flat_map(|it| [it.factor, it.whole]).collect();
    extents.extend(&balanced);
    let order = |extent: usize| DigitOrder {
        first_axis: first_axes.get(&extent).copied().unwrap_or(0),
        n_parts: n_parts(&pairs, extent, &mesh),
        is_balanced: balanced.contains(&extent),
    };
    let orders = extents.into_iter().map(|it| (it, order(it)));
    let ordered = orders
        .filter(|it| it.1 != DigitOrder::DEFAULT)
        .fold(mesh, |mesh, (extent, order)| mesh.with_digit_order(extent, order));
    // A pin that distinguishes axes already determines their order.
    let is_kept = |tiling: Tiling| tiling.placements().windows(2).all(|pair| pair[0] == pair[1]);
    let is_allowed = |it: &Value| network.pin(*it, &ordered).is_some_and(is_kept);
    if network.pins().iter().all(is_allowed) { ordered } else { mesh }
}

/// Returns the axes that take the first digits of extents, where that is not the first axis.
fn first_axes(pairs: &[PartialFactor], mesh: &Mesh) -> BTreeMap<usize, u8> {
    // If axes differ in size, an axis could take a digit of the whole extent before those of its
    // part, which lacks that digit.
    if mesh.sizes().any(|it| it != mesh.size(0)) {
        return BTreeMap::new();
    }
    let is_split = |it: &&PartialFactor| {
        it.place == Place::Outermost || !mesh.axes_with_digits(it.factor).is_empty()
    };
    let pairs: Vec<&PartialFactor> = pairs.iter().filter(is_split).collect();
    let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
    for &&PartialFactor { factor, whole, .. } in &pairs {
        let [one, other] = [factor, whole].map(|it| group_of.get(&it).copied().unwrap_or(it));
        let (least, most) = (usize::min(one, other), usize::max(one, other));
        group_of.entry(factor).or_insert(least);
        group_of.entry(whole).or_insert(least);
        group_of.values_mut().filter(|it| **it == most).for_each(|it| *it = least);
    }
    let mut starts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut end = mesh.n_axes();
    for pair in &pairs {
        let group = group_of[&pair.factor];
        let members = pairs.iter().map(|it| it.factor).filter(|it| group_of[it] == group);
        let n_digits =
            members.map(|it| mesh.axes_with_digits(it).iter().count()).min().unwrap_or(0);
        if (1..mesh.n_axes()).contains(&n_digits) && !starts.contains_key(&group) {
            end = if end >= n_digits { end - n_digits } else { mesh.n_axes() - n_digits };
            starts.insert(group, end);
        }
    }
    let start = |(extent, group): (&usize, &usize)| {
        let axis = u8::try_from(*starts.get(group)?).expect("a mesh has at most 16 axes");
        Some((*extent, axis))
    };
    group_of.iter().filter_map(start).collect()
}

/// Returns the extents of sequences of causal queries, and of dims whose outermost part such a
/// sequence is, if the digits of all of them suffice. They are no other part of a dim whose splits
/// would be lost.
fn balanced(network: &Network, pairs: &[PartialFactor], mesh: &Mesh) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for sequence in Attend::balanced_sequences(&network.graph) {
        let mut extents = BTreeSet::from([sequence]);
        let is_new = |it: &&PartialFactor, extents: &BTreeSet<usize>| {
            it.place == Place::Outermost
                && extents.contains(&it.factor)
                && !extents.contains(&it.whole)
        };
        while let Some(pair) = pairs.iter().find(|it| is_new(it, &extents)) {
            extents.insert(pair.whole);
        }
        let is_divided = |it: &usize| it.is_multiple_of(mesh.n_ranks() * mesh.free_radix());
        let has_digits = |it: usize| !mesh.axes_with_digits(it).is_empty();
        let is_kept = |it: &PartialFactor| match it.place {
            Place::Outermost => extents.contains(&it.factor) || !has_digits(it.factor),
            Place::Innermost => !has_digits(it.factor),
        };
        let of_extents = |it: &&PartialFactor| {
            extents.contains(&it.whole)
                || it.place == Place::Innermost && extents.contains(&it.factor)
        };
        if sequence > 0
            && extents.iter().all(is_divided)
            && pairs.iter().filter(of_extents).all(is_kept)
        {
            all.extend(extents);
        }
    }
    all
}

/// Returns the number of parts that dims of this extent consist of. Dims are one part if parts have
/// fewer digits, or if another factor is a part of the dim, or the dim of another: those splits
/// would be lost.
fn n_parts(pairs: &[PartialFactor], extent: usize, mesh: &Mesh) -> u16 {
    let n_digits = |extent: usize| mesh.axes_with_digits(extent).iter().count();
    let is_flattened = |it: &PartialFactor| {
        let is_of_extent = it.factor == extent || it.whole == extent;
        it.place == Place::Outermost && is_of_extent && n_digits(it.factor) > 0
    };
    if pairs.iter().any(is_flattened) {
        return 1;
    }
    let of_parts = pairs.iter().filter(|it| it.whole == extent && it.place == Place::Innermost);
    let n_parts = of_parts
        .filter(|it| n_digits(it.factor) > 0 && n_digits(it.factor) == n_digits(extent))
        .find_map(|it| u16::try_from(extent / it.factor).ok());
    n_parts.unwrap_or(1)
}

/// Returns the mesh with the order of its prime sizes that suits the network's extents best, if no
/// pin tells axes apart.
///
/// In `[2, 2, 2, 3]`, a dim of 768 gives three digits to axes of size 2 before that of size 3. 12
/// heads give only two, so their split by 3 is none of the 768 features. In `[3, 2, 2, 2]` it is.
pub(super) fn with_axis_order(network: &Network, mesh: Mesh) -> Mesh {
    let sizes: Vec<usize> = mesh.sizes().collect();
    let primes: BTreeSet<usize> = sizes.iter().copied().collect();
    if primes.len() < 2 || mesh.digit_orders().next().is_some() || !network.pins().is_empty() {
        return mesh;
    }
    // Parts of a dim have their digits in any order of the axes.
    let pairs = partial_factors(network).into_iter().filter(|it| it.place == Place::Outermost);
    let pairs: Vec<PartialFactor> = pairs.collect();
    let n_carried = |mesh: &Mesh| -> usize {
        let of_pair = |&PartialFactor { factor, whole, place }: &PartialFactor| {
            let carried = carried_axes(factor, whole, place, mesh);
            mesh.axes_with_digits(factor).iter().filter(|it| carried.contains(*it)).count()
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

/// A factor that is shorter than a dim which carries it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PartialFactor {
    factor: usize,
    whole: usize,
    place: Place,
}

/// Returns the factors that are shorter than a dim, in the order of the network.
fn partial_factors(network: &Network) -> Vec<PartialFactor> {
    let graph = &network.graph;
    let mut pairs = Vec::new();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let signature = operator.signature(&graph.operand_shapes(value));
        let dims = signature.operands.iter().chain([&signature.result]).flatten();
        // Windows move along few of the dims, whose parts are blocks in any order of the axes.
        for &Dim { extent, factor, place, .. } in dims.filter(|it| it.halo.is_none()) {
            let Some(factor) = factor.map(|it| signature.factors[usize::from(it)]) else {
                continue;
            };
            if factor != extent {
                super::number(&mut pairs, PartialFactor { factor, whole: extent, place });
            }
        }
    }
    pairs
}
