//! Attention by cuDNN, on GPUs for which it has kernels of its own.
//!
//! The forward form in `bf16` is one operation of cuDNN's graph API, with the causal mask as its
//! subgraph. Its plans are candidates beside the generated kernel, which runs unless a measurement
//! prefers a plan: whatever cuDNN refuses, the generated kernel computes.
//!
//! Gradients are those of generated kernels. cuDNN's engines for them add to the gradient of
//! queries by atomic operations in `f32`, although no note says so, so bits would depend on the
//! order of blocks.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

mod autotune;
mod operation;
mod shape;

use soybean_plan::{Attention, DType};

pub(crate) use self::autotune::{autotune, n_variants};
use self::{
    operation::{Scalars, plans},
    shape::AttentionShape,
};
use super::{
    cudnn::{
        CudnnError,
        engines::Plan,
        handle::{Cudnn, cudnn_error},
    },
    libraries::installation,
    stream::Stream,
};
use crate::Error;

/// First version of cuDNN that has the operation with masks.
const FIRST_VERSION: [usize; 3] = [9, 21, 0];
/// First compute capability for which cuDNN is asked.
const FIRST_CAPABILITY: (i32, i32) = (9, 0);

/// Attention of a program, with cuDNN's plans for it.
pub(crate) struct AttentionPlan {
    /// Plans within the limit of workspace, in cuDNN's order, and the number of the one to run.
    candidates: Vec<Plan>,
    chosen: usize,
    scalars: Scalars,
}

/// Device addresses of queries, keys and values, and of the results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionOperands<'a> {
    pub(crate) inputs: &'a [u64],
    pub(crate) results: &'a [u64],
}

impl AttentionPlan {
    /// Plans attention of these element types of inputs and result. Returns `None` if cuDNN has no
    /// deterministic engine for it within this workspace. Positions of queries are not read.
    pub(crate) fn new(
        cudnn: &Cudnn,
        attention: &Attention,
        (inputs, result): (&[DType], DType),
        max_workspace_bytes: usize,
    ) -> Option<Self> {
        let is_known = installation().cudnn().is_ok_and(|it| it.version >= FIRST_VERSION);
        let is_bf16 = inputs.iter().take(3).chain([&result]).all(|it| *it == DType::Bf16);
        if !is_known || cudnn.gpu().capability < FIRST_CAPABILITY || !is_bf16 {
            return None;
        }
        let shape = AttentionShape::new(attention)?;
        cudnn.gpu().bind().ok()?;
        let mut candidates = plans(&shape, &cudnn.name_of(attention), cudnn).ok()?;
        candidates.retain(|it| it.workspace_bytes <= max_workspace_bytes);
        let scalars = Scalars::new(attention);
        (!candidates.is_empty()).then_some(Self { candidates, chosen: 0, scalars })
    }

    /// Returns the workspace in bytes of [`Self::run`].
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.candidates[self.chosen].workspace_bytes
    }

    /// Queues the chosen plan.
    ///
    /// # Safety
    /// The plan was made with this handle, and the stream belongs to the same GPU. Until the kernel
    /// completes, the addresses hold the tensors of the attention. Nothing else uses the result or
    /// the workspace, which has [`Self::workspace_bytes`] bytes.
    pub(crate) unsafe fn run(
        &self,
        cudnn: &Cudnn,
        stream: &Stream,
        operands: AttentionOperands<'_>,
        workspace: u64,
    ) -> Result<(), Error> {
        cudnn.set_stream(stream)?;
        // SAFETY: required of the caller.
        unsafe { self.run_candidate(self.chosen, cudnn, operands, workspace) }
            .map_err(|error| cudnn_error("attention", error))
    }

    /// Queues the plan of this number on the stream of the handle.
    ///
    /// # Safety
    /// As [`Self::run`], with the workspace of that plan.
    unsafe fn run_candidate(
        &self,
        number: usize,
        cudnn: &Cudnn,
        AttentionOperands { inputs, results }: AttentionOperands<'_>,
        workspace: u64,
    ) -> Result<(), CudnnError> {
        let tensors: Vec<u64> = inputs.iter().take(3).chain(results).copied().collect();
        let (plan, tensors) = (&self.candidates[number], tensors.into_iter());
        // SAFETY: required of the caller.
        unsafe { operation::run(plan, cudnn, tensors, &self.scalars, workspace) }
    }
}

#[cfg(test)]
mod tests;
