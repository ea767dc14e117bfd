//! Edges between operators that read a tensor with a halo. If both need it in the same tiling, the
//! later one uses what the earlier one fetched: see [`Network::kept_halos`].
//!
//! [`Network::kept_halos`]: crate::network::Network::kept_halos

use std::rc::Rc;

use soybean_minsum::Edge;
use soybean_plan::Tiling;

use super::{Access, TilingProblem};
use crate::{signature::Partitioning, tiling::cost_model::CostModel};

/// Two operators of which one may use halos that the other has fetched.
pub(in crate::tiling) struct HaloEdge {
    /// The variable of the operator that fetches them first.
    pub(in crate::tiling) earlier: usize,
    /// The variable of the operator that may use them.
    pub(in crate::tiling) later: usize,
    /// The accesses of the later operator. Each has a source among those of the earlier one.
    pub(in crate::tiling) accesses: Vec<usize>,
}

impl HaloEdge {
    /// Returns the edge with this table.
    pub(in crate::tiling) fn edge(&self, table: Rc<[i64]>) -> Edge {
        Edge { first: self.earlier, second: self.later, table }
    }
}

/// The needs of the labels of two operators at one of the accesses of their edge.
pub(in crate::tiling) struct HaloTable<T> {
    /// The tiling that each label of the earlier operator needs.
    pub(in crate::tiling) earlier: Vec<T>,
    /// The tiling that each label of the later operator needs, and
    /// [`TilingProblem::costs_of_shared_halo`].
    pub(in crate::tiling) later: Vec<(T, [i64; 2])>,
}

impl<T: PartialEq> HaloTable<T> {
    /// Returns the costs of all pairs of labels, in row-major order, for all accesses of an edge.
    pub(in crate::tiling) fn sum(accesses: &[Self]) -> Rc<[i64]> {
        let [n_earlier, n_later] = [accesses[0].earlier.len(), accesses[0].later.len()];
        let cost = |at: usize| accesses.iter().map(|it| it.cost(at / n_later, at % n_later)).sum();
        (0..n_earlier * n_later).map(cost).collect()
    }

    fn cost(&self, earlier: usize, later: usize) -> i64 {
        let (needed, [anew, rest]) = &self.later[later];
        if self.earlier[earlier] == *needed { *rest } else { *anew }
    }
}

impl TilingProblem<'_> {
    /// Returns the costs of the halo in the tiling that an access needs: of the whole halo, and of
    /// the rest if the source of the halo needs the same tiling.
    pub(in crate::tiling) fn costs_of_shared_halo(
        &self,
        cost_model: &CostModel,
        access: usize,
        tiling: Tiling,
    ) -> [i64; 2] {
        let access = &self.accesses[access];
        let halo = self.halo(access, tiling);
        let rest = halo.without(&halo.within(&self.halo(self.halo_source(access), tiling)));
        [halo, rest].map(|it| self.cost_of_halo(cost_model, access, tiling, it))
    }

    /// Returns the access whose halo an access may use.
    pub(in crate::tiling) fn halo_source(&self, access: &Access) -> &Access {
        &self.accesses[access.halo_source.expect("accesses of halo edges have a source")]
    }

    /// Returns the cost of the halos that the later operator of an edge receives.
    pub(super) fn cost_of_halo_edge(
        &self,
        cost_model: &CostModel,
        edge: &HaloEdge,
        earlier: &Partitioning,
        later: &Partitioning,
    ) -> i64 {
        let of_access = |&at: &usize| {
            let access = &self.accesses[at];
            let tiling = self.accessed_tiling(access, later);
            let is_same = self.accessed_tiling(self.halo_source(access), earlier) == tiling;
            self.costs_of_shared_halo(cost_model, at, tiling)[usize::from(is_same)]
        };
        edge.accesses.iter().map(of_access).sum()
    }
}
