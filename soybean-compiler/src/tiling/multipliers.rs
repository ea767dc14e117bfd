//! What memory costs: prices on the bytes that ranks hold, beside the bytes that they move.
//!
//! A search under a memory limit chooses the prices, and counts in larger units, since what plans hold at any price must fit into a number.

use std::collections::BTreeMap;

use super::problem::{AccessEdge, TilingProblem, Variable, bytes_of};
use crate::{signature::Form, value::Value};

/// What each rank's memory costs, in bytes moved for a byte held.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemoryMultipliers {
    /// For each tensor, of the parts in which it is stored; nothing where the list ends.
    pub(crate) stored: Vec<f64>,
    /// For some operators, while they run, of what they read and make.
    pub(crate) kernels: BTreeMap<Value, KernelMultiplier>,
}

/// What an operator's memory costs while it runs: its result, and operands in the tilings of its form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KernelMultiplier {
    /// The price of a byte.
    pub(crate) price: f64,
    /// The operands that take memory however they are stored.
    pub(crate) fresh: Vec<usize>,
    /// The operands that take memory if they are stored in another tiling.
    pub(crate) stored: Vec<usize>,
}

impl MemoryMultipliers {
    /// Whether memory costs nothing.
    pub(super) fn are_zero(&self) -> bool {
        self.stored.is_empty()
    }
}

impl TilingProblem<'_> {
    /// What a tensor's parts cost in memory. KernelMultiplier copies cost where they are converted.
    pub(super) fn memory_price_of_storage(&self, value: Value, n_parts: u64) -> i64 {
        if self.network.graph.is_replica(value) {
            return 0;
        }
        let price = self.multipliers.stored.get(value.index()).copied().unwrap_or(0.0);
        self.memory_price(price, bytes_of(self.network, value) / n_parts)
    }

    /// What an operator's form costs in memory, whatever the tilings around it are.
    pub(super) fn memory_price_of_form(
        &self,
        user: Value,
        operator_kind: usize,
        form: &Form,
    ) -> i64 {
        let Some(kernel) = self.multipliers.kernels.get(&user) else { return 0 };
        let result = [(user, None)].into_iter();
        let operands = self.network.graph.operands(user);
        let fresh = kernel.fresh.iter().map(|&it| (operands[it], Some(it)));
        let bytes = |(value, operand)| self.local_bytes(value, operator_kind, operand, form);
        self.memory_price(kernel.price, result.chain(fresh).map(bytes).sum())
    }

    /// What a pair costs in memory because the operator uses the tensor otherwise than it is stored; `n_parts` gives for such a use the number of parts after the
    /// conversion.
    pub(super) fn memory_price_of_edge(
        &self,
        edge: &AccessEdge,
        n_parts: impl Fn(usize) -> Option<u64>,
    ) -> i64 {
        let Variable::Operator { value: user, .. } = self.variables[edge.operator] else {
            unreachable!("edges lead to operators")
        };
        if let Some(price) = self.copy_multiplier(user) {
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

    /// The price of a byte of a working copy: where it lies as the tensor, it costs nothing.
    fn copy_multiplier(&self, user: Value) -> Option<f64> {
        let price = self.multipliers.stored.get(user.index()).copied().filter(|it| *it > 0.0);
        price.filter(|_| self.network.graph.is_replica(user))
    }

    /// The number of what a pair's table depends on besides its uses: none of two pairs with different numbers may share a table.
    pub(super) fn multiplier_key(&self, edge: &AccessEdge) -> usize {
        let is_priced = |user: Value| {
            self.multipliers.kernels.contains_key(&user) || self.copy_multiplier(user).is_some()
        };
        match self.variables[edge.operator] {
            Variable::Operator { value, .. } if is_priced(value) => edge.operator + 1,
            Variable::Operator { .. } | Variable::Tensor { .. } => 0,
        }
    }

    /// The bytes of a rank's part of an operand or, if it is none, of the result.
    fn local_bytes(
        &self,
        value: Value,
        operator_kind: usize,
        operand: Option<usize>,
        form: &Form,
    ) -> u64 {
        let signature = &self.operator_kinds[operator_kind].signature;
        let tiling = match operand {
            Some(operand) => signature.operand_tiling(operand, form),
            None => signature.result_tiling(form),
        };
        let split = tiling.axes_where(|it| matches!(it, soybean_plan::Placement::Split(_)));
        bytes_of(self.network, value) / self.mesh.group_size(split) as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is too dear for a number is never chosen"
    )]
    fn memory_price(&self, price: f64, bytes: u64) -> i64 {
        let cost = price * bytes as f64 * self.unit() as f64;
        (cost as i64).min(1 << 56)
    }
}
