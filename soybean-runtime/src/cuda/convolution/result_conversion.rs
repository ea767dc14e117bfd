//! Conversion of a cuDNN result to the element type of the program.

use soybean_codegen::Address;
use soybean_plan::{BUFFER_ALIGNMENT, DType, Permutation, Shape};

/// Copy of a result from the start of the workspace to its place in the program, with another
/// element type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultConversion {
    /// The copy, without any change of order.
    pub(crate) permutation: Permutation,
    /// Element types of source and destination.
    pub(crate) types: [DType; 2],
}

impl ResultConversion {
    /// Location of the source.
    pub(crate) const FROM: Address = Address::Workspace(0);

    /// Returns the conversion of a result of so many elements; `None` if both types are the same.
    pub(super) fn new(n_elements: usize, types: [DType; 2]) -> Option<Self> {
        let extents = Shape::new(&[n_elements]);
        let permutation = Permutation { extents, input: extents.dense_strides() };
        (types[0] != types[1]).then_some(Self { permutation, types })
    }

    /// Returns the workspace in bytes for the source.
    pub(super) fn workspace_bytes(&self) -> usize {
        let n_bytes = self.permutation.extents.n_elements() * self.types[0].bytes();
        n_bytes.next_multiple_of(BUFFER_ALIGNMENT)
    }
}
