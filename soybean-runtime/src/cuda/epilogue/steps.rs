//! The steps of a phase after fusion.

use soybean_plan::{BufferId, Step};

use super::{Epilogue, Function};

/// A step of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FusedStep {
    /// As it was recorded.
    Plain(Step),
    /// A product with what followed it.
    Matmul(FusedMatmul),
    /// A vector of `f32` to be rounded to `bf16` into a slot, for the product that follows.
    Round {
        /// The vector.
        input: BufferId,
        /// The number of its slot.
        slot: usize,
    },
}

/// A product that does several steps' work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FusedMatmul {
    /// The number of the contraction.
    pub(crate) kernel: usize,
    /// Left and right operand.
    pub(crate) inputs: [BufferId; 2],
    /// What is written in place of the product.
    pub(crate) result: BufferId,
    /// How.
    pub(crate) epilogue: Epilogue,
    /// The vector of [`Epilogue::bias`]: read, or for gradients written.
    pub(crate) bias: Option<Location>,
    /// Where [`Epilogue::aux`] is.
    pub(crate) aux: Option<Location>,
}

/// Where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Memory besides the arena: the number of its size in [`Fused::slots`].
    Slot(usize),
    /// A buffer of the program.
    Buffer(BufferId),
}

/// A phase's steps after fusion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fused {
    /// The steps.
    pub(crate) steps: Vec<FusedStep>,
    /// The bytes of each slot.
    pub(crate) slots: Vec<usize>,
}

impl FusedStep {
    /// The buffers that are read.
    pub(crate) fn inputs(&self) -> Vec<BufferId> {
        match self {
            Self::Plain(step) => step.inputs.clone(),
            Self::Matmul(it) => it.inputs.into_iter().chain(it.extra_inputs()).collect(),
            Self::Round { input, .. } => vec![*input],
        }
    }

    /// The buffers that are written.
    pub(crate) fn results(&self) -> Vec<BufferId> {
        match self {
            Self::Plain(step) => step.results.clone(),
            Self::Matmul(it) => {
                let written = buffer(it.bias).filter(|_| it.is_gradient());
                let aux = buffer(it.aux).filter(|_| !it.is_gradient());
                [Some(it.result), written, aux].into_iter().flatten().collect()
            }
            Self::Round { .. } => Vec::new(),
        }
    }
}

impl FusedMatmul {
    pub(super) fn is_gradient(&self) -> bool {
        matches!(self.epilogue.function, Function::ReluGradient | Function::GeluGradient)
    }

    /// What is read besides the operands.
    pub(super) fn extra_inputs(&self) -> Vec<BufferId> {
        let read = buffer(self.bias).filter(|_| !self.is_gradient());
        let aux = buffer(self.aux).filter(|_| self.is_gradient());
        read.into_iter().chain(aux).collect()
    }
}

/// The buffer, if it is one.
pub(super) fn buffer(location: Option<Location>) -> Option<BufferId> {
    match location {
        Some(Location::Buffer(buffer)) => Some(buffer),
        Some(Location::Slot(_)) | None => None,
    }
}
