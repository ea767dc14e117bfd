//! The steps of a phase after fusion.

use soybean_plan::{BufferId, Step};

use super::{Epilogue, Function};

/// A step of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FusedStep {
    /// A recorded step.
    Plain(Step),
    /// A product with its epilogue.
    Product(FusedProduct),
    /// Rounding of an `f32` vector to `bf16` in a slot, for the product that follows.
    Round {
        /// The vector.
        input: BufferId,
        /// Number of the slot.
        slot: usize,
    },
}

/// A matrix product or a convolution, with an epilogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FusedProduct {
    /// Index of the contraction or convolution.
    pub(crate) kernel: usize,
    /// Left and right operand.
    pub(crate) inputs: [BufferId; 2],
    /// Result of the epilogue.
    pub(crate) result: BufferId,
    /// The epilogue.
    pub(crate) epilogue: Epilogue,
    /// Vector of [`Epilogue::bias`]. Gradients write it, other functions read it.
    pub(crate) bias: Option<Location>,
    /// Buffer of [`Epilogue::aux`].
    pub(crate) aux: Option<Location>,
}

/// Location of a bias or an auxiliary buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Memory besides the arena: an index into [`Fused::slots`].
    Slot(usize),
    /// A buffer of the program.
    Buffer(BufferId),
}

/// The steps of a phase after fusion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fused {
    /// The steps.
    pub(crate) steps: Vec<FusedStep>,
    /// Size of each slot in bytes.
    pub(crate) slots: Vec<usize>,
}

impl FusedStep {
    /// Returns the buffers that are read.
    pub(crate) fn inputs(&self) -> Vec<BufferId> {
        match self {
            Self::Plain(step) => step.inputs.clone(),
            Self::Product(it) => it.inputs.into_iter().chain(it.extra_inputs()).collect(),
            Self::Round { input, .. } => vec![*input],
        }
    }

    /// Returns the buffers that are written.
    pub(crate) fn results(&self) -> Vec<BufferId> {
        match self {
            Self::Plain(step) => step.results.clone(),
            Self::Product(it) => {
                let written = buffer(it.bias).filter(|_| it.is_gradient());
                let aux = buffer(it.aux).filter(|_| !it.is_gradient());
                [Some(it.result), written, aux].into_iter().flatten().collect()
            }
            Self::Round { .. } => Vec::new(),
        }
    }
}

impl FusedProduct {
    /// Returns whether the epilogue writes its bias and reads its auxiliary buffer, as gradients
    /// do.
    pub(super) fn is_gradient(&self) -> bool {
        match self.epilogue.function {
            Function::ReluGradient | Function::GeluGradient => true,
            Function::LeftSums | Function::RightSums => true,
            Function::Identity | Function::Relu | Function::Gelu => false,
            Function::ReluAux | Function::GeluAux => false,
        }
    }

    /// Returns the buffers that are read besides the operands.
    pub(super) fn extra_inputs(&self) -> Vec<BufferId> {
        let read = buffer(self.bias).filter(|_| !self.is_gradient());
        let aux = buffer(self.aux).filter(|_| self.is_gradient());
        read.into_iter().chain(aux).collect()
    }
}

/// Returns the buffer of a location, if it is one.
pub(super) fn buffer(location: Option<Location>) -> Option<BufferId> {
    match location {
        Some(Location::Buffer(buffer)) => Some(buffer),
        Some(Location::Slot(_)) | None => None,
    }
}
