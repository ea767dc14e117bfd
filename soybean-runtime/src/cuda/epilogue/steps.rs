//! The steps of a phase after fusion.

use std::collections::BTreeSet;

use soybean_plan::{BufferId, Step};

use super::{Epilogue, Function};

/// A step of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FusedStep {
    /// A recorded step.
    Plain(Step),
    /// A product with its epilogue.
    Product(FusedProduct),
    /// Several products in one call.
    Joined(JoinedProducts),
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
    /// Buffer of [`Epilogue::aux`], or the result of relu for its gradient.
    pub(crate) aux: Option<BufferId>,
}

/// Matrix products of one form in one call: the buffers of each role lie at equal distances, or are
/// one that all read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedProducts {
    /// Index of the contraction whose batch the products are.
    pub(crate) kernel: usize,
    /// Epilogue of all, with the distance of the biases.
    pub(crate) epilogue: Epilogue,
    /// The products, in the order of their places.
    pub(crate) products: Vec<FusedProduct>,
}

/// Location of a bias.
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
            Self::Product(it) => it.reads(),
            Self::Joined(it) => distinct(it.products.iter().flat_map(FusedProduct::reads)),
            Self::Round { input, .. } => vec![*input],
        }
    }

    /// Returns the buffers that are written.
    pub(crate) fn results(&self) -> Vec<BufferId> {
        match self {
            Self::Plain(step) => step.results.clone(),
            Self::Product(it) => it.writes(),
            Self::Joined(it) => it.products.iter().flat_map(FusedProduct::writes).collect(),
            Self::Round { .. } => Vec::new(),
        }
    }

    /// Returns whether the step reads or writes memory besides the arena.
    pub(crate) fn uses_slots(&self) -> bool {
        let is_slot = |it: Option<Location>| matches!(it, Some(Location::Slot(_)));
        match self {
            Self::Product(it) => is_slot(it.bias),
            Self::Round { .. } => true,
            Self::Plain(_) | Self::Joined(_) => false,
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
            Function::Identity | Function::Relu | Function::Gelu | Function::GeluAux => false,
        }
    }

    /// Returns the buffers that are read.
    pub(crate) fn reads(&self) -> Vec<BufferId> {
        self.inputs.into_iter().chain(self.extra_inputs()).collect()
    }

    /// Returns the buffers that are written.
    pub(crate) fn writes(&self) -> Vec<BufferId> {
        let sums = buffer(self.bias).filter(|_| self.is_gradient());
        let aux = self.aux.filter(|_| !self.is_gradient());
        [Some(self.result), sums, aux].into_iter().flatten().collect()
    }

    /// Returns the buffers that are read besides the operands.
    pub(super) fn extra_inputs(&self) -> Vec<BufferId> {
        let read = buffer(self.bias).filter(|_| !self.is_gradient());
        let aux = self.aux.filter(|_| self.is_gradient());
        read.into_iter().chain(aux).collect()
    }
}

/// Returns the buffer of a location, if it is one.
pub(crate) fn buffer(location: Option<Location>) -> Option<BufferId> {
    match location {
        Some(Location::Buffer(buffer)) => Some(buffer),
        Some(Location::Slot(_)) | None => None,
    }
}

/// Returns the buffers, each once.
fn distinct(buffers: impl Iterator<Item = BufferId>) -> Vec<BufferId> {
    buffers.collect::<BTreeSet<_>>().into_iter().collect()
}
