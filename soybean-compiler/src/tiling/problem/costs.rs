//! The costs of plans: of a whole plan, of a label, and of the labels of an edge.

use soybean_plan::{Halo, Shape, Tile, Tiling};

use super::{Access, AccessEdge, HaloEdge, Label, TilingProblem, Variable};
use crate::{
    signature::Partitioning,
    tiling::cost_model::{ConversionCost, CostModel},
};

impl TilingProblem<'_> {
    /// Returns the cost of a plan.
    pub(in crate::tiling) fn cost(&self, plan: &[Label]) -> i64 {
        self.cost_by(&self.cost_model, plan)
    }

    /// Returns the bytes that a plan moves, whatever the objective is.
    pub(in crate::tiling) fn bytes(&self, plan: &[Label]) -> u64 {
        self.whole(self.cost_by(&CostModel::Bytes, plan))
    }

    fn cost_by(&self, cost_model: &CostModel, plan: &[Label]) -> i64 {
        let of_choice =
            |(variable, it): (usize, &Label)| self.cost_of_label(cost_model, variable, it);
        let of_pair = |edge: &AccessEdge| {
            let (tiling, partitioning) =
                (plan[edge.tensor].tiling(), plan[edge.operator].partitioning());
            self.cost_of_edge(cost_model, edge, tiling, partitioning)
        };
        let of_halos = |edge: &HaloEdge| {
            let [earlier, later] = [edge.earlier, edge.later].map(|it| plan[it].partitioning());
            self.cost_of_halo_edge(cost_model, edge, earlier, later)
        };
        plan.iter().enumerate().map(of_choice).sum::<i64>()
            + self.edges.iter().map(of_pair).sum::<i64>()
            + self.halo_edges.iter().map(of_halos).sum::<i64>()
    }

    /// Returns the unary cost of a label.
    pub(in crate::tiling) fn cost_of_label(
        &self,
        cost_model: &CostModel,
        variable: usize,
        label: &Label,
    ) -> i64 {
        match self.variables[variable] {
            Variable::Tensor { value, tensor_kind } => {
                let n_parts = self.tensor_kinds[tensor_kind].n_parts(&label.tiling());
                self.storage_tie_break(value, n_parts)
                    + self.memory_price_of_storage(value, n_parts)
            }
            Variable::Operator { value, operator_kind } => {
                self.unit() * cost_model.kernel(self.network, value, label.partitioning())
                    + self.memory_price_of_partitioning(value, operator_kind, label.partitioning())
            }
        }
    }

    /// Returns the cost of the labels of an edge.
    pub(in crate::tiling) fn cost_of_edge(
        &self,
        cost_model: &CostModel,
        edge: &AccessEdge,
        tiling: Tiling,
        partitioning: &Partitioning,
    ) -> i64 {
        let of_access = |access: &Access| {
            let needed = self.accessed_tiling(access, partitioning);
            self.cost_of_conversion(cost_model, access, tiling, needed)
                + self.cost_of_own_halo(cost_model, access, needed)
        };
        edge.accesses.iter().map(|&it| of_access(&self.accesses[it])).sum::<i64>()
            + self.memory_price_of_labels(edge, tiling, partitioning)
    }

    /// Returns the halo of the tensor in the tiling that an access needs.
    pub(super) fn halo(&self, access: &Access, tiling: Tiling) -> Halo {
        match access.operand {
            Some(_) => {
                self.operator_kinds[access.operator_kind].signature.halo(access.operand, &tiling)
            }
            None => Halo::NONE,
        }
    }

    /// Returns the cost of the halo of the tensor in the tiling that an access needs, if it uses no
    /// other halo.
    pub(in crate::tiling) fn cost_of_own_halo(
        &self,
        cost_model: &CostModel,
        access: &Access,
        tiling: Tiling,
    ) -> i64 {
        match access.halo_source {
            Some(_) => 0,
            None => self.cost_of_halo(cost_model, access, tiling, self.halo(access, tiling)),
        }
    }

    /// Returns the cost of receiving a halo at an access.
    pub(super) fn cost_of_halo(
        &self,
        cost_model: &CostModel,
        access: &Access,
        tiling: Tiling,
        halo: Halo,
    ) -> i64 {
        let signature = &self.operator_kinds[access.operator_kind].signature;
        let Some(operand) = access.operand.filter(|_| !halo.is_none()) else { return 0 };
        let shape: Shape = signature.operands[operand].iter().map(|dim| dim.extent).collect();
        let tile = Tile::new(shape, tiling);
        let element_bytes = access.bytes / shape.n_elements() as u64;
        let (axes, bytes) = (halo.axes(&tile), halo.moved(&tile, &self.mesh) * element_bytes);
        if access.weight > 0 {
            return cost_model.measured_halo(axes, bytes, access) * self.unit();
        }
        self.part_of_unit(cost_model.evaluated_halo(axes, bytes, self.evaluation_byte))
    }

    /// Returns the cost of a tensor's tiling at an access that needs or gives another one, without
    /// its halo.
    pub(in crate::tiling) fn cost_of_conversion(
        &self,
        cost_model: &CostModel,
        access: &Access,
        tiling: Tiling,
        other: Tiling,
    ) -> i64 {
        let price = self.conversion_cost(cost_model, access, tiling, other);
        self.cost_of_access_by(cost_model, access, price)
            + self.replica_tie_break_of(access, tiling, other)
    }

    /// Returns [`LegalSplits::conversion_cost`] of a tensor's tiling at an access that needs or
    /// gives another one.
    ///
    /// [`LegalSplits::conversion_cost`]: crate::tiling::tiling_space::LegalSplits::conversion_cost
    pub(in crate::tiling) fn conversion_cost(
        &self,
        cost_model: &CostModel,
        access: &Access,
        tiling: Tiling,
        other: Tiling,
    ) -> ConversionCost {
        if tiling == other {
            return ConversionCost::NONE;
        }
        let (from, to) = if access.operand.is_some() { (tiling, other) } else { (other, tiling) };
        self.tensor_kinds[access.tensor_kind].conversion_cost(cost_model, from, to)
    }

    /// Returns the tie-break of a replica's tiling at an access that needs or gives another one.
    pub(in crate::tiling) fn replica_tie_break_of(
        &self,
        access: &Access,
        tiling: Tiling,
        other: Tiling,
    ) -> i64 {
        if !access.is_replica || tiling == other {
            return 0;
        }
        let to = if access.operand.is_some() { other } else { tiling };
        self.replica_tie_break(access, self.tensor_kinds[access.tensor_kind].n_parts(&to))
    }

    /// Returns the memory price of the labels of an edge.
    pub(in crate::tiling) fn memory_price_of_labels(
        &self,
        edge: &AccessEdge,
        tiling: Tiling,
        partitioning: &Partitioning,
    ) -> i64 {
        let n_parts = |access: usize| {
            let Access { tensor_kind, operand, .. } = self.accesses[access];
            let other = self.accessed_tiling(&self.accesses[access], partitioning);
            let to = if operand.is_some() { other } else { tiling };
            (other != tiling).then(|| self.tensor_kinds[tensor_kind].n_parts(&to))
        };
        self.memory_price_of_edge(edge, n_parts)
    }

    /// Returns the cost of an access, given [`LegalSplits::conversion_cost`].
    pub(in crate::tiling) fn cost_of_access(&self, access: &Access, price: ConversionCost) -> i64 {
        self.cost_of_access_by(&self.cost_model, access, price)
    }

    fn cost_of_access_by(
        &self,
        cost_model: &CostModel,
        access: &Access,
        price: ConversionCost,
    ) -> i64 {
        if price == ConversionCost::NONE {
            return 0;
        }
        let n_ranks = self.mesh.n_ranks() as u64;
        if access.weight > 0 {
            return cost_model.measured(price, access, n_ranks) * self.unit();
        }
        let part = cost_model.evaluated(price, access.bytes, n_ranks, self.evaluation_byte);
        self.part_of_unit(part)
    }
}
