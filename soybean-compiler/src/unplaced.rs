//! The program between lowering and the memory plan: its buffers have sizes, but no offsets.

use soybean_plan::{BUFFER_ALIGNMENT, DType, Program, Topology};

use crate::peak::Held;

/// The order in which steps are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Collectives run beside products; see [`mod@crate::overlap`].
    Overlapped,
    /// The order of the tasks: each collective right before its reader, and each update as early as
    /// possible. Nothing waits, so this order takes the least memory.
    Lean,
}

/// The size of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) n_elements: usize,
    pub(crate) dtype: DType,
    /// True if it is kept from step to step.
    pub(crate) is_persistent: bool,
}

impl Storage {
    /// Returns the bytes that the buffer takes, rounded up so that all buffers are aligned.
    pub(crate) fn bytes(&self) -> usize {
        (self.n_elements * self.dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT)
    }
}

/// A program whose buffers have no offsets yet.
#[derive(Clone, Debug)]
pub(crate) struct Unplaced {
    /// The program; all offsets and the size of the arena are 0.
    pub(crate) program: Program,
    /// The size of each buffer.
    pub(crate) storage: Vec<Storage>,
    /// The tensor that each buffer holds, and its purpose.
    pub(crate) contents: Vec<Held>,
    /// The machine on which collectives run beside kernels; `None` if nothing shall wait, so that
    /// the program takes the least memory.
    pub(crate) overlaps_on: Option<Topology>,
}
