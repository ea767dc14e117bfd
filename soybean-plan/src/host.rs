//! Tensors on the host, row-major: inputs and outputs of a program.

use crate::DType;

/// Borrowed elements of one tensor of a batch, row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View<'a> {
    /// Single precision numbers.
    F32(&'a [f32]),
    /// Integers, such as class labels.
    I32(&'a [i32]),
}

impl View<'_> {
    /// Returns the type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I32(_) => DType::I32,
        }
    }

    /// Returns the number of elements.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        match self {
            Self::F32(elements) => elements.len(),
            Self::I32(elements) => elements.len(),
        }
    }
}

/// A whole tensor on the host, row-major: a parameter or an output. Parameters have no integers:
/// `Array { shape, data, ..Array::default() }`.
///
/// Arrays are equal if they have the same shape and elements, whatever a model uses them for.
#[derive(Clone, Debug, Default)]
pub struct Array {
    /// The extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements. Integers are converted to the nearest `f32`.
    pub data: Vec<f32>,
    /// The elements of an output of integers, unchanged; empty for numbers.
    pub integers: Vec<i32>,
    /// A hash of how the model uses a parameter, as [`Parameter::use_hash`](crate::Parameter); 0 if
    /// it is not known.
    pub use_hash: u64,
}

impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        let Self { shape, data, integers, use_hash: _ } = self;
        (shape, data, integers) == (&other.shape, &other.data, &other.integers)
    }
}

impl Array {
    /// Returns the array of the integers whose bits the elements have.
    #[must_use]
    pub fn of_bits(self) -> Self {
        let integers: Vec<i32> = self.data.iter().map(|it| it.to_bits().cast_signed()).collect();
        let data = integers.iter().map(|it| *it as f32).collect();
        Self { data, integers, ..self }
    }
}
