//! Data on the host, in the user's order: what goes into a trainer and what comes out.

use soybean_plan::DType;

/// One tensor of a batch: row-major elements, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View<'a> {
    /// Single precision numbers.
    F32(&'a [f32]),
    /// Integers, such as class labels.
    I32(&'a [i32]),
}

impl View<'_> {
    /// The type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I32(_) => DType::I32,
        }
    }

    /// The number of elements.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        match self {
            Self::F32(elements) => elements.len(),
            Self::I32(elements) => elements.len(),
        }
    }
}

/// A whole tensor, row-major: a parameter or an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements; integers as the nearest numbers.
    pub data: Vec<f32>,
}

/// What an evaluation computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The loss of the batch.
    pub loss: f32,
    /// The model's further outputs, in the order in which it returns them.
    pub outputs: Vec<Array>,
}
