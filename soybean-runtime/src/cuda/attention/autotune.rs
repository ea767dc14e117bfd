//! Choice between the generated kernel and cuDNN's plans by measurement.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use super::{AttentionOperands, AttentionPlan};
use crate::{
    Error,
    cuda::{
        autotune::{Attempt, Autotuner},
        convolution::Cudnn,
        kernels::{GeneratedOperations, KernelOperands},
        stream::Stream,
    },
};

impl AttentionPlan {
    /// Chooses the fastest plan. Returns `None` if the generated kernel is faster.
    pub(crate) fn autotune(
        mut self,
        cudnn: &Cudnn,
        tuner: &mut Autotuner<'_>,
        generated: &GeneratedOperations,
    ) -> Result<Option<Self>, Error> {
        let (inputs, results) = (self.attention.input_lengths(), self.attention.result_lengths());
        let workspace = self.candidates.iter().map(|it| it.workspace_bytes).max().unwrap_or(0);
        // Only the logarithms, if they are saved, have numbers of 4 bytes.
        let sizes = inputs.iter().chain(&results).zip([2, 2, 2, 2, 4]);
        let sizes = sizes.map(|(n, of_number)| self.attention.heads * n * of_number);
        let blocks: Vec<usize> = sizes.chain([workspace.max(generated.whole_bytes)]).collect();
        let engines: Vec<i64> = self.candidates.iter().map(|it| it.engine).collect();
        let kernel = format!("{:?} cuDNN's engines {engines:?}", self.attention);
        let run = |number: usize, stream: &Stream, blocks: &[u64]| {
            let Some((&workspace, tensors)) = blocks.split_last() else {
                return Ok(Attempt::Refused);
            };
            let (inputs, results) = tensors.split_at(3);
            let Some(number) = number.checked_sub(1) else {
                let operands =
                    KernelOperands { inputs, results, scalars: 0, workspace, bias: 0, aux: 0 };
                // SAFETY: the blocks are as large as the tensors, and nothing else uses them.
                unsafe { generated.run_whole(stream, operands) }?;
                return Ok(Attempt::Queued);
            };
            cudnn.set_stream(stream)?;
            let operands = AttentionOperands { inputs, results };
            // SAFETY: as above.
            let queued = unsafe { self.run_candidate(number, cudnn, operands, workspace) };
            Ok(queued.map_or(Attempt::Refused, |()| Attempt::Queued))
        };
        let fastest = tuner.fastest(&kernel, 1 + self.candidates.len(), &blocks, run)?;
        Ok(fastest.checked_sub(1).map(|chosen| {
            self.chosen = chosen;
            self
        }))
    }
}
