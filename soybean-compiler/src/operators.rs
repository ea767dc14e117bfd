//! The primitive operators: one file each, with all rules of the operator.

pub mod accumulate;
pub mod addition;
pub mod attend;
pub mod combination;
pub mod concatenate;
pub mod contract;
pub mod convolve;
pub mod custom;
pub mod elementwise;
pub mod embed;
pub mod embed_update;
pub mod index;
pub mod iota;
pub mod pad;
pub mod permute;
pub mod phase_select;
pub mod pool;
pub mod rank;
pub mod reduce;
pub mod replica;
pub mod reshape;
pub mod total;
mod window;

use accumulate::Accumulate;
use addition::Addition;
use combination::Combination;
use elementwise::Elementwise;
use reduce::Reduce;

use crate::operator::Operator;

/// Returns the map that an operator computes, alone or of terms that it combines or reduces.
pub(crate) fn map_of(operator: &Operator) -> Option<&Elementwise> {
    let map = operator.downcast_ref::<Elementwise>();
    let map = map.or_else(|| operator.downcast_ref::<Reduce>().map(|it| &it.map));
    map.or_else(|| operator.downcast_ref::<Combination>().map(|it| &it.map))
}

/// Returns whether an operator adds up or combines tensors that may be partial sums.
pub(crate) fn combines_terms(operator: &Operator) -> bool {
    let is_total = operator.downcast_ref::<Accumulate>().is_some_and(Accumulate::is_total);
    is_total || operator.is::<Addition>() || operator.is::<Combination>()
}
