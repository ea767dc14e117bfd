//! Epilogues of matrix products and convolutions: elementwise functions that a product applies
//! before it writes its result.

mod fuse;
mod pattern;
mod steps;
mod sums;

use soybean_plan::{DType, Precision};

pub(crate) use self::{
    fuse::{CanFuse, Rounded, fuse},
    pattern::bias_of,
    steps::{Fused, FusedProduct, FusedStep, JoinedProducts, Location, buffer},
    sums::operand_sums,
};

/// An elementwise function of a product's result, and a bias vector along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Epilogue {
    /// Function that is applied to the product.
    pub(crate) function: Function,
    /// Element type of the bias, if there is one. The bias is added to each row before the
    /// function. [`Function::GeluGradient`] writes it instead: the sum of all rows of the result.
    /// [`Function::LeftSums`] and [`Function::RightSums`] write the sums of an operand.
    pub(crate) bias: Option<DType>,
    /// Distance in elements between the bias vectors of the products of a batch.
    pub(crate) bias_stride: usize,
}

/// An elementwise function, and the auxiliary output that its gradient needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Function {
    /// `x`
    #[default]
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`
    Gelu,
    /// Gelu with its argument as auxiliary output.
    GeluAux,
    /// The element if that of relu's result is positive, otherwise 0. That result is the third
    /// input of convolutions. Matrix products leave this to a kernel of its own: cuBLASLt's
    /// epilogue, with a bit mask instead of relu's result, makes a product of 2048 x 8192 x 8192
    /// on an H200 24 % slower in `tf32` and 31 % in `bf16`. The kernel moves fewer bytes than the
    /// GPU does in that time.
    ReluGradient,
    /// The element times the derivative of gelu at the stored argument.
    GeluGradient,
    /// `x`. The bias gets the sum of each row of the left operand.
    LeftSums,
    /// `x`. The bias gets the sum of each column of the right operand.
    RightSums,
}

/// Auxiliary buffer between a function and its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuxBuffer {
    /// Distance between rows in elements.
    pub(crate) row: usize,
    /// Size in bytes.
    pub(crate) n_bytes: usize,
}

impl Epilogue {
    /// Returns the epilogue of a product that is no batch.
    pub(crate) const fn new(function: Function, bias: Option<DType>) -> Self {
        Self { function, bias, bias_stride: 0 }
    }

    /// Returns true if the epilogue does nothing.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::default()
    }

    /// Returns true if cuBLASLt computes the function as exactly as products of this precision.
    /// Its documentation does not say how it computes tanh: the instruction of GPUs errs by 2^-11.
    pub(crate) fn is_accurate_in(self, precision: Precision) -> bool {
        match self.function {
            Function::Gelu | Function::GeluAux | Function::GeluGradient => {
                precision != Precision::F32
            }
            Function::Identity | Function::Relu | Function::ReluGradient => true,
            Function::LeftSums | Function::RightSums => true,
        }
    }

    /// Returns the number of the operand whose sums the epilogue writes: 0 is the left one.
    pub(crate) fn summed_operand(self) -> Option<usize> {
        match self.function {
            Function::LeftSums => Some(0),
            Function::RightSums => Some(1),
            Function::Identity | Function::Relu | Function::ReluGradient => None,
            Function::Gelu | Function::GeluAux | Function::GeluGradient => None,
        }
    }

    /// Returns true if the epilogue reads or writes an auxiliary buffer of its own.
    pub(crate) fn has_aux(self) -> bool {
        self.aux(1, 1, DType::F32).is_some()
    }

    /// Returns the auxiliary buffer for a result of this shape and type, if the function needs one.
    pub(crate) fn aux(self, rows: usize, columns: usize, result: DType) -> Option<AuxBuffer> {
        match self.function {
            Function::Identity
            | Function::Relu
            | Function::Gelu
            | Function::ReluGradient
            | Function::LeftSums
            | Function::RightSums => None,
            // cuBLASLt requires row strides that are multiples of 8 elements.
            Function::GeluAux | Function::GeluGradient => {
                let row = columns.next_multiple_of(8);
                Some(AuxBuffer { row, n_bytes: row * rows * result.bytes() })
            }
        }
    }
}
