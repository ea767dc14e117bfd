//! What memory costs: prices on the bytes that ranks hold, beside the bytes that they move.
//!
//! A search under a memory limit chooses the prices, and counts in larger units, since what plans hold at any price must fit into a number.

use std::collections::BTreeMap;

use super::problem::{BYTE, Meaning, Pair, Problem, bytes_of};
use crate::{graph::Value, signature::Form};

/// The cost of one byte moved where memory is priced.
const BYTE_WHERE_PRICED: i64 = 1 << 8;

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
    /// The cost of one byte moved beside these charges.
    pub(super) fn byte(&self) -> i64 {
        if self.stored.is_empty() { BYTE } else { BYTE_WHERE_PRICED }
    }
}

impl Problem<'_> {
    /// What a tensor's parts cost in memory.
    pub(super) fn charge_of_storage(&self, value: Value, n_parts: u64) -> i64 {
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

    /// What an operator's form costs in memory because this tensor, which it reads, is stored otherwise; `is_other` says that of a use.
    pub(super) fn charge_of_pair(
        &self,
        pair: &Pair,
        form: &Form,
        is_other: impl Fn(usize) -> bool,
    ) -> i64 {
        let Meaning::Operator { value: user, work } = self.meanings[pair.operator] else {
            unreachable!("pairs lead to operators")
        };
        let Some(working) = self.charges.working.get(&user) else { return 0 };
        let operands = self.network.graph.operands(user);
        let bytes = |&usage: &usize| match self.uses[usage].operand {
            Some(operand) if working.stored.contains(&operand) && is_other(usage) => {
                self.local_bytes(operands[operand], work, Some(operand), form)
            }
            _ => 0,
        };
        self.charge(working.price, pair.uses.iter().map(bytes).sum())
    }

    /// The number of what a pair's table depends on besides its uses: none of two pairs with different numbers may share a table.
    pub(super) fn charge_number(&self, pair: &Pair) -> usize {
        match self.meanings[pair.operator] {
            Meaning::Operator { value, .. } if self.charges.working.contains_key(&value) => {
                pair.operator + 1
            }
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
        let cost = price * bytes as f64 * self.charges.byte() as f64;
        (cost as i64).min(1 << 56)
    }
}
