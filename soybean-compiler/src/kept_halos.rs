//! Halos that are fetched once: an operator may use the halo that an earlier one has fetched.
//!
//! A forward convolution and the gradient of its filters read the same halo of the images. If both
//! need the images in the same tiling, ranks keep the borders of their parts from the first to the
//! second. Each read has one earlier read whose halo it may use, so costs stay pairwise: the
//! partitionings of two operators decide what is fetched.

use std::collections::BTreeMap;

use soybean_plan::{Combine, Halo, MAX_RANK};

use crate::{network::Network, operator::Phase, operators::attend::Attend, value::Value};

/// A read of an operand: the operator's result, and the position of the operand.
pub type Read = (Value, usize);

/// For a read with a halo, the earlier read whose halo it may use.
pub type KeptHalos = BTreeMap<Read, Read>;

/// A read with a halo if all dims are split.
struct HaloRead {
    read: Read,
    halo: Halo,
    /// The function whose identity the halo holds outside the tensor.
    outside: Combine,
}

/// Returns for each read with a halo the first earlier one of the same tensor with the same halo,
/// or else a wider one, or one that is as wide on some side.
#[must_use]
pub(crate) fn kept_halos(network: &Network) -> KeptHalos {
    let reads = reads_with_halo(network);
    if reads.values().all(|it| it.len() < 2) {
        return KeptHalos::new();
    }
    let phases = phases(network);
    let is_always_before = |one: &HaloRead, other: &HaloRead| {
        let [one, other] = [one, other].map(|it| it.read.0);
        let has_both = |is_made: &Vec<bool>| is_made[one.index()] || !is_made[other.index()];
        one < other && phases.iter().all(has_both)
    };
    let mut kept = KeptHalos::new();
    for of_tensor in reads.values() {
        for (at, read) in of_tensor.iter().enumerate() {
            let earlier = of_tensor[..at]
                .iter()
                .filter(|it| it.outside == read.outside && is_always_before(it, read));
            let earlier: Vec<&HaloRead> = earlier.collect();
            let first = |is_of_use: &dyn Fn(&Halo) -> bool| {
                earlier.iter().find(|it| is_of_use(&it.halo)).map(|it| it.read)
            };
            let source = first(&|it| *it == read.halo)
                .or_else(|| first(&|it| read.halo.within(it) == read.halo))
                .or_else(|| first(&|it| has_side(&read.halo, it)));
            kept.extend(source.map(|it| (read.read, it)));
        }
    }
    kept
}

/// Returns the same reads in a network in which each operator has the value that `of` has for it.
pub(crate) fn remapped(kept: &KeptHalos, of: &BTreeMap<Value, Value>) -> KeptHalos {
    let moved = |(value, position): Read| (of[&value], position);
    kept.iter().map(|(&read, &source)| (moved(read), moved(source))).collect()
}

/// Returns the reads with halos, in order, by the tensor that is read. Updates run at times of
/// their own, so next values are left out.
fn reads_with_halo(network: &Network) -> BTreeMap<Value, Vec<HaloRead>> {
    let (graph, next) = (&network.graph, network.next_values());
    let mut reads: BTreeMap<Value, Vec<HaloRead>> = BTreeMap::new();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        if next.contains(&value) || Attend::computed_with(graph, value).is_some() {
            continue;
        }
        let signature = operator.signature(&graph.operand_shapes(value));
        for (position, tensor) in graph.operands(value).into_iter().enumerate() {
            let halo = signature.widest_halo(position);
            if !halo.is_none() {
                let (read, outside) = ((value, position), operator.outside(position));
                reads.entry(tensor).or_default().push(HaloRead { read, halo, outside });
            }
        }
    }
    reads
}

/// Returns the marks of what each phase computes.
fn phases(network: &Network) -> Vec<Vec<bool>> {
    let phases = network.training().chain([Phase::Accumulate]).chain(network.evaluations());
    phases.map(|it| network.graph.ancestors_in(it, &network.left_by(it))).collect()
}

/// Returns whether another halo is as wide as this one on some side.
fn has_side(halo: &Halo, other: &Halo) -> bool {
    let along = |halo: &Halo, dim: usize| Halo::NONE.with(dim, [halo.before[dim], halo.after[dim]]);
    (0..MAX_RANK).any(|dim| !along(halo, dim).within(&along(other, dim)).is_none())
}
