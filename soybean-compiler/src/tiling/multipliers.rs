//! Lagrange multipliers of memory: prices on the bytes that ranks hold, in addition to the bytes
//! that they move.
//!
//! A search under a memory limit sets them. The unit of costs is then smaller, so that no priced
//! cost overflows.

use std::collections::BTreeMap;

use super::problem::{AccessEdge, TilingProblem, Variable, bytes_of};
use crate::{signature::Partitioning, value::Value};

/// The prices of each rank's memory, in bytes moved per byte held.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryMultipliers {
    /// The price of the stored part of each tensor; 0 beyond the end of the list.
    pub(crate) stored: Vec<f64>,
    /// The prices of what some kernels hold while they run.
    pub(crate) kernels: BTreeMap<Value, KernelMultiplier>,
}

/// The price of a kernel's memory: its result, and operands in the tilings of its partitioning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelMultiplier {
    /// The price of a byte.
    pub(crate) price: f64,
    /// The operands that take memory whatever their stored tiling is.
    pub(crate) fresh: Vec<usize>,
    /// The operands that take memory if their stored tiling is another one.
    pub(crate) stored: Vec<usize>,
}

impl MemoryMultipliers {
    /// Returns whether memory is free.
    pub(super) fn are_zero(&self) -> bool {
        self.stored.is_empty()
    }
}

impl TilingProblem<'_> {
    /// Returns the memory price of storing a tensor in this many parts. Replicas count where they
    /// are converted.
    pub(super) fn memory_price_of_storage(&self, value: Value, n_parts: u64) -> i64 {
        if self.network.graph.is_replica(value) {
            return 0;
        }
        let price = self.multipliers.stored.get(value.index()).copied().unwrap_or(0.0);
        self.memory_price(price, bytes_of(self.network, value) / n_parts)
    }

    /// Returns the memory price of an operator's partitioning that does not depend on the tilings
    /// around it.
    pub(super) fn memory_price_of_partitioning(
        &self,
        user: Value,
        operator_kind: usize,
        partitioning: &Partitioning,
    ) -> i64 {
        let Some(kernel) = self.multipliers.kernels.get(&user) else { return 0 };
        let result = [(user, None)].into_iter();
        let operands = self.network.graph.operands(user);
        let fresh = kernel.fresh.iter().map(|&it| (operands[it], Some(it)));
        let bytes =
            |(value, operand)| self.local_bytes(value, operator_kind, operand, partitioning);
        self.memory_price(kernel.price, result.chain(fresh).map(bytes).sum())
    }

    /// Returns the memory price of the accesses of an edge that need another tiling than the stored
    /// one. `n_parts` gives the number of parts after the conversion of such an access.
    pub(super) fn memory_price_of_edge(
        &self,
        edge: &AccessEdge,
        n_parts: impl Fn(usize) -> Option<u64>,
    ) -> i64 {
        let Variable::Operator { value: user, .. } = self.variables[edge.operator] else {
            unreachable!("edges lead to operators")
        };
        if let Some(price) = self.replica_multiplier(user) {
            let bytes =
                |&access: &usize| n_parts(access).map(|it| self.accesses[access].bytes / it);
            return self.memory_price(price, edge.accesses.iter().filter_map(bytes).sum());
        }
        let Some(kernel) = self.multipliers.kernels.get(&user) else { return 0 };
        let bytes = |&access: &usize| {
            let operand = self.accesses[access].operand?;
            let is_held = kernel.stored.contains(&operand);
            n_parts(access).filter(|_| is_held).map(|it| self.accesses[access].bytes / it)
        };
        self.memory_price(kernel.price, edge.accesses.iter().filter_map(bytes).sum())
    }

    /// Returns the price of a byte of a replica, which is free in the tiling of its tensor.
    fn replica_multiplier(&self, user: Value) -> Option<f64> {
        let price = self.multipliers.stored.get(user.index()).copied().filter(|it| *it > 0.0);
        price.filter(|_| self.network.graph.is_replica(user))
    }

    /// Returns a key for the memory prices of an edge. Edges with different keys must not share a
    /// table.
    pub(super) fn multiplier_key(&self, edge: &AccessEdge) -> usize {
        let is_priced = |user: Value| {
            self.multipliers.kernels.contains_key(&user) || self.replica_multiplier(user).is_some()
        };
        match self.variables[edge.operator] {
            _ if self.multipliers.are_zero() => 0,
            Variable::Operator { value, .. } if is_priced(value) => edge.operator + 1,
            Variable::Operator { .. } | Variable::Tensor { .. } => 0,
        }
    }

    /// Returns the size of a rank's part of an operand, or of the result, in bytes.
    fn local_bytes(
        &self,
        value: Value,
        operator_kind: usize,
        operand: Option<usize>,
        partitioning: &Partitioning,
    ) -> u64 {
        let signature = &self.operator_kinds[operator_kind].signature;
        let tiling = match operand {
            Some(operand) => signature.operand_tiling(operand, partitioning),
            None => signature.result_tiling(partitioning),
        };
        let split = tiling.axes_where(|it| matches!(it, soybean_plan::Placement::Split(_)));
        bytes_of(self.network, value) / self.mesh.group_size(split) as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "a price that overflows is never chosen")]
    fn memory_price(&self, price: f64, bytes: u64) -> i64 {
        let cost = price * bytes as f64 * self.unit() as f64;
        (cost as i64).min(1 << 56)
    }
}
