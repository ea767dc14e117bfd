//! What stored tensors cost below one byte moved, so that among plans of equal bytes the one that holds the least wins.

use super::problem::{Problem, Use, bytes_of};
use crate::value::Value;

impl Problem<'_> {
    /// What it costs to store a tensor in as many parts. Working copies take memory where they are converted, if they are.
    pub(super) fn cost_of_storage(&self, value: Value, n_parts: u64) -> i64 {
        match self.network.graph.is_copy(value) {
            true => 0,
            false => self.cost_of_holding(bytes_of(self.network, value) / n_parts),
        }
    }

    /// What it costs besides the conversion to get a tensor in a tiling with as many parts: where it lies otherwise, a working copy is held. Where it lies
    /// so, the copy is the tensor.
    pub(super) fn cost_of_copy(&self, usage: &Use, n_parts: u64) -> i64 {
        if usage.is_copy { self.cost_of_holding(usage.bytes / n_parts) } else { 0 }
    }

    fn cost_of_holding(&self, bytes: u64) -> i64 {
        // Memory counts for less than one byte moved, whatever its sum over all tensors.
        self.part_of_unit(bytes as f64 / self.total_bytes as f64 / 2.0)
    }
}
