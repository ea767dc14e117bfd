//! What a product does to its result before writing it, so that no kernel need read it again.

mod fuse;
mod pattern;
mod steps;

use soybean_plan::DType;

pub(crate) use self::{
    fuse::fuse,
    steps::{Fused, FusedProduct, FusedStep, Location},
};

/// A function of each element of a product's result, and a vector along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Epilogue {
    /// What is written in place of the product.
    pub(crate) function: Function,
    /// The type of the vector, if there is one. It is added to each row before the function; [`Function::ReluGradient`] and [`Function::GeluGradient`]
    /// instead write it: the sum of all rows of the result.
    pub(crate) bias: Option<DType>,
}

/// A function of one element, and what is kept of its argument for the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Function {
    /// The element itself.
    #[default]
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`
    Gelu,
    /// Relu; keeps a bit for each element that says whether it was positive.
    ReluKept,
    /// Gelu; keeps its argument.
    GeluKept,
    /// The element where a kept bit says so, else 0.
    ReluGradient,
    /// The element times the derivative of gelu at the kept argument.
    GeluGradient,
}

/// What is kept between a function and its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The distance between the rows, in elements or bits.
    pub(crate) row: usize,
    /// The size in bytes.
    pub(crate) n_bytes: usize,
}

impl Epilogue {
    /// Whether it does anything.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::default()
    }

    /// Whether something is kept, or was.
    pub(crate) fn keeps(self) -> bool {
        self.kept(1, 1, DType::F32).is_some()
    }

    /// What is written or read besides operands and result, for a result of this shape and type; none for most functions.
    pub(crate) fn kept(self, rows: usize, columns: usize, result: DType) -> Option<Kept> {
        match self.function {
            Function::Identity | Function::Relu | Function::Gelu => None,
            // cuBLASLt wants the rows at multiples of 128 bits or of 8 elements.
            Function::ReluKept | Function::ReluGradient => {
                let row = columns.next_multiple_of(128);
                Some(Kept { row, n_bytes: row / 8 * rows })
            }
            Function::GeluKept | Function::GeluGradient => {
                let row = columns.next_multiple_of(8);
                Some(Kept { row, n_bytes: row * rows * result.bytes() })
            }
        }
    }
}
