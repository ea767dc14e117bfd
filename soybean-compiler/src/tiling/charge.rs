//! What memory costs: prices on the bytes that ranks hold, beside the bytes that they move.
//!
//! A search under a memory limit chooses the prices, and counts in larger units, since what plans hold at any price must fit into a number.

use std::collections::BTreeMap;

use super::problem::{Meaning, Pair, Problem, bytes_of};
use crate::{signature::Form, value::Value};

/// What each rank's memory costs, in bytes moved for a byte held.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Charges {
    /// For each tensor, of the parts in which it is stored; nothing where the list ends.
    pub(crate) stored: Vec<f64>,
    /// For some operators, while they run, of what they read and make.
    pub(crate) working: BTreeMap<Value, Working>,
}

/// What an operator's memory costs while it runs: its result, and operands in the tilings of its form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Working {
    /// The price of a byte.
    pub(crate) price: f64,
    /// The operands that take memory however they are stored.
    pub(crate) fresh: Vec<usize>,
    /// The operands that take memory if they are stored in another tiling.
    pub(crate) stored: Vec<usize>,
}

impl Charges {
    /// Whether memory costs nothing.
    pub(super) fn are_none(&self) -> bool {
        self.stored.is_empty()
    }
}

impl Problem<'_> {
    /// What a tensor's parts cost in memory. Working copies cost where they are converted.
    pub(super) fn charge_of_storage(&self, value: Value, n_parts: u64) -> i64 {
        if self.network.graph.is_copy(value) {
            return 0;
        }
        let price = self.charges.stored.get(value.index()).copied().unwrap_or(0.0);
        self.charge(price, bytes_of(self.network, value) / n_parts)
    }

    /// What an operator's form costs in memory, whatever the tilings around it are.
    pub(super) fn charge_of_form(&self, user: Value, work: usize, form: &Form) -> i64 {
        let Some(working) = self.charges.working.get(&user) else { return 0 };
        let result = [(user, None)].into_iter();
        let operands = self.network.graph.operands(user);
        let fresh = working.fresh.iter().map(|&it| (operands[it], Some(it)));
        let bytes = |(value, operand)| self.local_bytes(value, work, operand, form);
        self.charge(working.price, result.chain(fresh).map(bytes).sum())
    }

    /// What a pair costs in memory because the operator uses the tensor otherwise than it is stored; `n_parts` gives for such a use the number of parts after the
    /// conversion.
    pub(super) fn charge_of_pair(
        &self,
        pair: &Pair,
        n_parts: impl Fn(usize) -> Option<u64>,
    ) -> i64 {
        let Meaning::Operator { value: user, .. } = self.meanings[pair.operator] else {
            unreachable!("pairs lead to operators")
        };
        if let Some(price) = self.price_of_copy(user) {
            let bytes = |&usage: &usize| n_parts(usage).map(|it| self.uses[usage].bytes / it);
            return self.charge(price, pair.uses.iter().filter_map(bytes).sum());
        }
        let Some(working) = self.charges.working.get(&user) else { return 0 };
        let bytes = |&usage: &usize| {
            let operand = self.uses[usage].operand?;
            let is_held = working.stored.contains(&operand);
            n_parts(usage).filter(|_| is_held).map(|it| self.uses[usage].bytes / it)
        };
        self.charge(working.price, pair.uses.iter().filter_map(bytes).sum())
    }

    /// The price of a byte of a working copy: where it lies as the tensor, it costs nothing.
    fn price_of_copy(&self, user: Value) -> Option<f64> {
        let price = self.charges.stored.get(user.index()).copied().filter(|it| *it > 0.0);
        price.filter(|_| self.network.graph.is_copy(user))
    }

    /// The number of what a pair's table depends on besides its uses: none of two pairs with different numbers may share a table.
    pub(super) fn charge_number(&self, pair: &Pair) -> usize {
        let is_priced = |user: Value| {
            self.charges.working.contains_key(&user) || self.price_of_copy(user).is_some()
        };
        match self.meanings[pair.operator] {
            Meaning::Operator { value, .. } if is_priced(value) => pair.operator + 1,
            Meaning::Operator { .. } | Meaning::Tensor { .. } => 0,
        }
    }

    /// The bytes of a rank's part of an operand or, if it is none, of the result.
    fn local_bytes(&self, value: Value, work: usize, operand: Option<usize>, form: &Form) -> u64 {
        let signature = &self.works[work].signature;
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
    fn charge(&self, price: f64, bytes: u64) -> i64 {
        let cost = price * bytes as f64 * self.unit() as f64;
        (cost as i64).min(1 << 56)
    }
}
