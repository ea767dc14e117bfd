//! The primitive operators: the list, and what every one of them must say of itself.
//!
//! What users call (`softmax`, `cross_entropy`) is built from these few by the table in [`crate::surface`].

use std::fmt;

use soybean_plan::{DType, Kernel, Shape};

use crate::{
    gradient::Tape,
    graph::Value,
    operators::{
        attend::Attend, by_phase::ByPhase, concatenate::Concatenate, contract::Contract,
        convolve::Convolve, elementwise::Elementwise, embed::Embed, iota::Iota, pad::Pad,
        permute::Permute, pool::Pool, reduce::Reduce, reshape::Reshape, share::Share, total::Total,
    },
    scalar,
    signature::Signature,
};

/// What an operator says of itself: all its rules, side by side in its own file.
pub trait Rules: fmt::Display {
    /// Index notation, bound to the shapes of the operands.
    fn signature(&self, operands: &[Shape]) -> Signature;

    /// The gradient of each operand, given the gradient of the result; none where none flows.
    fn gradient(&self, call: &Call<'_>, tape: &mut Tape<'_>) -> Vec<Option<Value>>;

    /// Floating-point operations for each point of the loops.
    fn flops_per_point(&self) -> u64;

    /// How its tensors are kept where a network computes in `bf16`.
    fn rounding(&self) -> Rounding;

    /// What a rank runs for its part, given the shapes of its parts of the operands and the result; none where there is nothing to run.
    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel>;

    /// The type of the result's elements, given those of the operands.
    fn dtype(&self, _operands: &[DType]) -> DType {
        DType::F32
    }
}

/// How an operator's tensors are kept where a network computes in `bf16`. Integers and what must be exact stay as they are in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Operands and result are rounded: numbers of `bf16` are multiplied, and their products added up in `f32`.
    Product,
    /// Operands are read as they are; the result is rounded if one of them is, or if a product reads it.
    Map,
    /// Operands and result are of one type, rounded if an operand is, or if a product reads the result.
    Alike,
    /// Operands are read as they are; the result is rounded.
    Rounded,
    /// Operands are read as they are; the result is exact.
    Exact,
}

/// One use of an operator, as its gradient sees it.
pub struct Call<'a> {
    /// The operands.
    pub operands: &'a [Value],
    /// The result.
    pub result: Value,
    /// The gradient of the loss by the result.
    pub gradient: Value,
}

macro_rules! operators {
    ($($operator:ident,)*) => {
        /// A primitive operator. Nothing outside its own file looks inside, except passes that work on one kind of operator.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Operator { $(#[expect(missing_docs, reason = "the type says it")] $operator($operator),)* }

        impl Operator {
            fn rules(&self) -> &dyn Rules {
                match self { $(Self::$operator(rules) => rules,)* }
            }
        }

        $(impl From<$operator> for Operator {
            fn from(operator: $operator) -> Self {
                Self::$operator(operator)
            }
        })*
    };
}

operators! {
    Attend, ByPhase, Concatenate, Contract, Convolve, Elementwise, Embed, Iota, Pad, Permute, Pool, Reduce, Reshape, Share,
    Total,
}

impl Operator {
    /// What kind of operator it is, in one word: the first of its text form.
    #[must_use]
    pub fn kind(&self) -> String {
        let text = self.to_string();
        text.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Whether the result is an operand's memory, seen in another shape or in one phase.
    #[must_use]
    pub fn is_alias(&self) -> bool {
        matches!(self, Self::Reshape(_) | Self::ByPhase(_) | Self::Share(_))
    }

    /// Whether ranks may repeat each other's work wherever that saves bytes, since there is none, or next to none.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.is_cast() || self.is_share()
    }

    /// Whether the result is a working copy of the operand.
    #[must_use]
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    /// Whether the result is the operand in `bf16`. Ranks that have the whole operand would sooner round all of it than send each other parts.
    #[must_use]
    pub fn is_cast(&self) -> bool {
        let is_identity = |map: &Elementwise| map.program == scalar::identity();
        matches!(self, Self::Elementwise(map) if map.dtype == DType::Bf16 && is_identity(map))
    }
}

impl Rules for Operator {
    fn signature(&self, operands: &[Shape]) -> Signature {
        self.rules().signature(operands)
    }

    fn gradient(&self, call: &Call<'_>, tape: &mut Tape<'_>) -> Vec<Option<Value>> {
        self.rules().gradient(call, tape)
    }

    fn flops_per_point(&self) -> u64 {
        self.rules().flops_per_point()
    }

    fn rounding(&self) -> Rounding {
        self.rules().rounding()
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        self.rules().kernel(operands, result)
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        self.rules().dtype(operands)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.rules(), f)
    }
}
