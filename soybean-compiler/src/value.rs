//! The name of a tensor in a graph.

use std::fmt;

/// A tensor of a [`Graph`](crate::graph::Graph), by its position in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(u32);

impl Value {
    /// Returns the tensor at a position of the graph's order of creation.
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a graph has fewer than 2^32 tensors"))
    }

    /// Returns the position of the tensor in the graph's order of creation.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.index())
    }
}
