//! Samples: calls by which operators are tried.

/// A call by which an operator is tried.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The operator's name.
    pub operator: &'static str,
    /// Its arguments; the first is the receiver.
    pub arguments: &'static [SampleArgument],
}

/// An argument of a [`Sample`].
#[derive(Clone, Copy, Debug)]
pub enum SampleArgument {
    /// A tensor of this shape, with elements between the bounds.
    Tensor {
        /// The shape.
        shape: &'static [usize],
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// A buffer of this shape, with elements between the bounds.
    Buffer {
        /// The shape.
        shape: &'static [usize],
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// Class labels of this shape.
    Labels {
        /// The shape.
        shape: &'static [usize],
        /// The number of classes.
        n_classes: usize,
    },
    /// An integer constant.
    Integer(i64),
    /// A number.
    Float(f64),
    /// An array of integers.
    List(&'static [i64]),
    /// A truth value.
    Boolean(bool),
    /// A string.
    Text(&'static str),
    /// An array of tensors or labels.
    Array(&'static [SampleArgument]),
    /// `..`
    All,
}

impl SampleArgument {
    /// Returns a tensor with elements between -2 and 2.
    pub(super) const fn tensor(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: -2.0, high: 2.0 }
    }

    /// Returns a tensor with elements between 0.5 and 2.
    pub(super) const fn positive(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: 0.5, high: 2.0 }
    }
}
