//! What stored tensors cost below one byte moved, so that among plans of equal bytes the one that holds the least wins.

use super::problem::{Access, TilingProblem, bytes_of};
use crate::value::Value;

impl TilingProblem<'_> {
    /// What it costs to store a tensor in as many parts. KernelMultiplier copies take memory where they are converted, if they are.
    pub(super) fn storage_tie_break(&self, value: Value, n_parts: u64) -> i64 {
        match self.network.graph.is_replica(value) {
            true => 0,
            false => self.tie_break(bytes_of(self.network, value) / n_parts),
        }
    }

    /// What it costs besides the conversion to get a tensor in a tiling with as many parts: where it lies otherwise, a working copy is held. Where it lies
    /// so, the copy is the tensor.
    pub(super) fn copy_tie_break(&self, access: &Access, n_parts: u64) -> i64 {
        if access.is_copy { self.tie_break(access.bytes / n_parts) } else { 0 }
    }

    fn tie_break(&self, bytes: u64) -> i64 {
        // Memory counts for less than one byte moved, whatever its sum over all tensors.
        self.part_of_unit(bytes as f64 / self.total_bytes as f64 / 2.0)
    }
}
