//! What one byte costs in a search, so that all sums fit into a number and ties are decided below it.
//!
//! Costs are integers of 63 bits. Most networks move so little that a byte can be 2^20, and whatever decides ties comes to less than that. Of those that move more than some 2^42 bytes
//! under a bad plan, a byte is less; ties are then between plans that are some bytes apart, far less than a billionth of what moves.

use super::{
    price::Pricing,
    problem::{BYTE, Choice, Pair, Problem, Use},
};

/// The least that all memory together counts for, so that the shares of a network's tensors can be told apart.
const LEAST_FOR_TIES: i64 = 1 << 16;

impl Problem<'_> {
    /// The cost of one byte, at most [`BYTE`].
    pub(super) fn unit_of_bytes(&self) -> i64 {
        let uses = self.pairs.iter().flat_map(|it| &it.uses).map(|&it| &self.uses[it]);
        let used: u64 = uses.filter(|it| it.is_trained).map(|it| it.bytes).sum();
        // A bad plan gives every rank a copy of everything that is used.
        let most = used as f64 * self.mesh.n_ranks() as f64;
        let mut unit = BYTE;
        while unit > 1 && most * unit as f64 > (1_u64 << 62) as f64 {
            unit /= 2;
        }
        unit
    }

    /// The cost of one whole unit, a byte or a tick of time.
    pub(super) fn unit(&self) -> i64 {
        self.charges.unit().min(self.unit)
    }

    /// The whole units of a cost, without what decides ties.
    pub(super) fn whole_units(&self, cost: i64) -> u64 {
        u64::try_from(cost / self.unit()).expect("costs are not negative")
    }

    /// A cost where a unit is [`BYTE`] in the units of this problem.
    pub(super) fn scaled(&self, cost: i64) -> i64 {
        cost / (BYTE / self.unit())
    }

    /// What all memory together counts for where it has no price.
    pub(super) fn most_for_ties(&self) -> i64 {
        let least = LEAST_FOR_TIES.min(self.charges.unit() / 2);
        (self.unit() / 2).max(least)
    }

    /// The bytes that a plan moves, whatever is counted.
    pub(super) fn bytes(&self, plan: &[Choice]) -> u64 {
        let n_ranks = self.mesh.n_ranks() as u64;
        let of_pair = |pair: &Pair| -> u64 {
            let (tiling, form) = (plan[pair.tensor].tiling(), plan[pair.operator].form());
            let of_use = |usage: &Use| {
                let other = self.tiling_of_use(usage, form);
                let is_read = usage.operand.is_some();
                let (from, to) = if is_read { (tiling, other) } else { (other, tiling) };
                let price = self.kinds[usage.kind].price(&Pricing::Bytes, from, to);
                price.bytes(usage.bytes, n_ranks)
            };
            let uses = pair.uses.iter().map(|&it| &self.uses[it]);
            uses.filter(|it| it.is_trained).map(of_use).sum()
        };
        self.pairs.iter().map(of_pair).sum()
    }
}
