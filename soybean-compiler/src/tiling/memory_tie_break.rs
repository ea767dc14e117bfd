//! The memory tie-break: of plans that move equal bytes, the one that stores the least wins.

use super::problem::{Access, TilingProblem, bytes_of};
use crate::value::Value;

impl TilingProblem<'_> {
    /// Returns the tie-break of storing a tensor in this many parts. A replica counts where it is
    /// converted, if it is.
    pub(super) fn storage_tie_break(&self, value: Value, n_parts: u64) -> i64 {
        match self.network.graph.is_replica(value) {
            true => 0,
            false => self.tie_break(bytes_of(self.network, value) / n_parts),
        }
    }

    /// Returns the tie-break of converting a tensor to a tiling with this many parts: a replica in
    /// another tiling takes memory of its own.
    pub(super) fn replica_tie_break(&self, access: &Access, n_parts: u64) -> i64 {
        if access.is_replica { self.tie_break(access.bytes / n_parts) } else { 0 }
    }

    fn tie_break(&self, bytes: u64) -> i64 {
        // All tensors together count for less than one byte moved.
        self.part_of_unit(bytes as f64 / self.total_bytes as f64 / 2.0)
    }
}
