//! Memory of a rank that the plan does not count.

use std::fmt;

use soybean_plan::readable_bytes;

/// Memory of one rank on its GPU besides the arena of its plan, in bytes. It is known once a
/// trainer or predictor has started, since it depends on the GPU's libraries. Compiled kernels and
/// what the driver and the libraries hold themselves are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBesidePlan {
    /// Tensors that only GPUs keep, such as rounded copies of parameters.
    pub tensors: u64,
    /// The workspace of matrix products and convolutions.
    pub workspace: u64,
    /// Two batches on their way to the device, and memory of collectives.
    pub transfers: u64,
}

impl MemoryBesidePlan {
    /// Returns the sum of all parts.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.tensors + self.workspace + self.transfers
    }
}

impl fmt::Display for MemoryBesidePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [total, tensors, workspace, transfers] =
            [self.total(), self.tensors, self.workspace, self.transfers].map(readable_bytes);
        write!(f, "{total} (tensors {tensors}, workspace {workspace}, transfers {transfers})")
    }
}
