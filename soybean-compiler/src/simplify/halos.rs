//! Attention in windows beside other causal attention over sequences of the same length.
//!
//! The search balances the sequences of causal attention without windows: each rank has ranges from
//! all over them. A halo would have to be around each range, so the windows of such sequences read
//! all keys.

use std::collections::BTreeSet;

use crate::{operator::Operator, operators::attend::Attend};

/// Returns the operator, without a halo if it is attention over a sequence of these lengths.
pub(super) fn dropped(operator: &Operator, balanced: &BTreeSet<usize>) -> Operator {
    match operator.downcast_ref::<Attend>() {
        Some(it) if it.reads_halo && balanced.contains(&it.queries) => {
            Attend { reads_halo: false, ..it.clone() }.into()
        }
        Some(_) | None => operator.clone(),
    }
}
