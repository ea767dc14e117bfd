//! The costs of halos: of those that an access has for itself, and of those on halo edges.

use std::{collections::BTreeMap, rc::Rc};

use soybean_minsum::Edge;

use super::Instance;
use crate::{
    signature::{Dim, Partitioning},
    tiling::problem::{
        Access, TilingProblem,
        halo_edge::{HaloEdge, HaloTable},
    },
};

/// The key of a halo edge's table: its accesses, and the numbers of the lists of labels.
type HaloKey<'a> = (&'a [usize], [usize; 2]);

impl Instance<'_> {
    /// Returns the halo edges over the kept labels, given the number of each list of them.
    pub(super) fn halo_edges(&self, kept: &[Vec<usize>], of_kept: &[usize]) -> Vec<Edge> {
        let mut known: BTreeMap<HaloKey<'_>, Rc<[i64]>> = BTreeMap::new();
        let mut edge = |edge: &HaloEdge, key| {
            let labels = [edge.earlier, edge.later].map(|it| &kept[it][..]);
            let table = known.entry(key).or_insert_with(|| self.halo_table(edge, labels));
            edge.edge(Rc::clone(table))
        };
        let edges = self.problem.halo_edges.iter();
        edges
            .map(|it| edge(it, (&it.accesses[..], [it.earlier, it.later].map(|at| of_kept[at]))))
            .collect()
    }

    /// Returns the costs of the halos of an edge. Orbits that may be of equal tilings share them.
    fn halo_table(&self, edge: &HaloEdge, [earlier, later]: [&[usize]; 2]) -> Rc<[i64]> {
        let problem = self.problem;
        let of_access = |&at: &usize| {
            let access = &problem.accesses[at];
            let source = access.halo_source.expect("accesses of halo edges have a source");
            let costs = |it: usize| {
                let partitioning = &self.partitionings[access.operator_kind][it];
                let tiling = problem.accessed_tiling(access, partitioning);
                problem.costs_of_shared_halo(&problem.cost_model, at, tiling)
            };
            HaloTable {
                earlier: earlier.iter().map(|&it| self.positions[source][it]).collect(),
                later: later.iter().map(|&it| (self.positions[at][it], costs(it))).collect(),
            }
        };
        let accesses: Vec<HaloTable<usize>> = edge.accesses.iter().map(of_access).collect();
        HaloTable::sum(&accesses)
    }
}

/// Returns the costs of the halos that partitionings need at an access; none if no dim has one, or
/// if it may use another halo. They depend on the number of axes of each class that split a dim, so
/// orbits have them, too.
pub(super) fn halo_costs(
    problem: &TilingProblem<'_>,
    access: &Access,
    partitionings: &[Partitioning],
) -> Rc<[i64]> {
    let signature = &problem.operator_kinds[access.operator_kind].signature;
    let has_halo = signature.dims(access.operand).iter().any(Dim::has_halo);
    if !has_halo || access.halo_source.is_some() {
        return Rc::new([]);
    }
    let cost = |it: &Partitioning| {
        let tiling = problem.accessed_tiling(access, it);
        problem.cost_of_own_halo(&problem.cost_model, access, tiling)
    };
    partitionings.iter().map(cost).collect()
}
