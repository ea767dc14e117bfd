//! Choice of a convolution's algorithm by measurement.
#![expect(unsafe_code, reason = "convolutions run on raw memory")]

use soybean_plan::{Convolution, ConvolutionForm, DType};

use super::{ConvolutionOperands, ConvolutionPlan, Cudnn, extents};
use crate::{
    Error,
    cuda::{
        autotune::{Attempt, Autotuner},
        stream::Stream,
    },
};

impl ConvolutionPlan {
    /// Chooses the fastest algorithm for this convolution, which the plan was made for.
    pub(crate) fn autotune(
        &mut self,
        cudnn: &Cudnn,
        tuner: &mut Autotuner<'_>,
        convolution: &Convolution,
        types: [DType; 3],
    ) -> Result<(), Error> {
        let [left, right, result] = operand_bytes(convolution, types);
        let workspace = self.candidates.iter().map(|it| it.workspace_bytes).max().unwrap_or(0);
        // The memory that is free decides which algorithms are candidates.
        let kernel = format!("{convolution:?} {types:?} {:?}", self.candidates);
        let run = |number: usize, stream: &Stream, blocks: &[u64]| {
            let &[left, right, result, workspace] = blocks else {
                return Ok(Attempt::Refused);
            };
            let operands = ConvolutionOperands { left, right, result, bias: 0 };
            // SAFETY: the blocks are as large as the operands, and nothing else uses them.
            unsafe { self.run_candidate(number, cudnn, stream, operands, workspace) }?;
            Ok(Attempt::Queued)
        };
        let blocks = [left, right, result, self.converted_bytes() + workspace];
        self.chosen = tuner.fastest(&kernel, self.candidates.len(), &blocks, run)?;
        Ok(())
    }
}

/// Returns the bytes of left operand, right operand and result.
fn operand_bytes(convolution: &Convolution, [left, right, result]: [DType; 3]) -> [usize; 3] {
    let [images, filters, results] = extents(convolution).map(|it| it.iter().product::<usize>());
    let sizes = match convolution.form {
        ConvolutionForm::Forward => [images, filters, results],
        ConvolutionForm::Data => [results, filters, images],
        ConvolutionForm::Filter => [images, results, filters],
    };
    let [of_left, of_right, of_result] = sizes;
    [of_left * left.bytes(), of_right * right.bytes(), of_result * result.bytes()]
}
