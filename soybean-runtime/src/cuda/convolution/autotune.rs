//! Choice of a convolution's engine by measurement.
#![expect(unsafe_code, reason = "convolutions run on raw memory")]

use soybean_codegen::{Call, has_few_channels_filter};
use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Precision};

use super::{
    ConvolutionOperands, ConvolutionPlan, Cudnn, Remaining, extents, is_refusal, run_error,
};
use crate::{
    Error,
    cuda::{
        autotune::{Attempt, Autotuner, Requirement},
        epilogue::{Epilogue, Function},
        generated_operations::GeneratedOperations,
        kernels::KernelOperands,
        stream::Stream,
    },
};

/// cuDNN's tensor cores take channels in multiples of this, and it pads other numbers. It has fast
/// kernels for twice as many and more.
const CHANNELS_OF_LIBRARY: usize = 8;

impl ConvolutionPlan {
    /// Returns true if the generated kernel may be faster than cuDNN: on few channels.
    pub(crate) fn has_rival(convolution: &Convolution, call: &Call<'_>) -> bool {
        let channels = convolution.channels;
        match (convolution.layout, convolution.form) {
            (ImageLayout::ChannelsLast, ConvolutionForm::Forward) => {
                channels <= CHANNELS_OF_LIBRARY || !channels.is_multiple_of(CHANNELS_OF_LIBRARY)
            }
            _ => has_few_channels_filter(convolution, call),
        }
    }

    /// Chooses the fastest engine for this convolution, which the plan was made for. Returns `None`
    /// if the generated kernel is faster.
    pub(crate) fn autotune(
        mut self,
        cudnn: &Cudnn,
        tuner: &mut Autotuner<'_>,
        (convolution, types, epilogue): (&Convolution, [DType; 3], Epilogue),
        generated: &GeneratedOperations,
    ) -> Result<Option<Self>, Error> {
        let (n_engines, n_rivals) = (self.candidates.len(), generated.n_variants());
        let numbers = |has_epilogue: bool| -> Vec<i64> {
            let some = self.candidates.iter().filter(|it| it.has_epilogue == has_epilogue);
            some.map(|it| it.engine.number).collect()
        };
        let kernel = format!(
            "{convolution:?} {types:?} {epilogue:?} within {} bytes: engines with the epilogue {:?}, \
             without {:?}, {n_rivals} generated kernels",
            self.max_workspace_bytes,
            numbers(true),
            numbers(false)
        );
        let run = |number: usize, stream: &Stream, blocks: &[u64]| {
            let &[left, right, third, result, workspace] = blocks else {
                return Ok(Attempt::Refused);
            };
            let (inputs, results) = ([left, right, third], [result]);
            let operands = KernelOperands::plain(&inputs, &results, workspace);
            if number == n_engines {
                // SAFETY: the blocks are as large as the operands, and nothing else uses them.
                unsafe { generated.run_variant(0, stream, operands) }?;
                return Ok(Attempt::Queued);
            }
            cudnn.set_stream(stream)?;
            let result = operands.address(self.result())?;
            let at = ConvolutionOperands { left, right, result, third };
            // SAFETY: as above.
            match unsafe { self.run_candidate(number, cudnn, at, workspace) } {
                Ok(Remaining::Nothing) => {}
                // SAFETY: as above.
                Ok(Remaining::Operations) => unsafe {
                    generated.run_remaining(stream, operands)?;
                },
                Err(error) if is_refusal(error) => return Ok(Attempt::Refused),
                Err(error) => return Err(run_error(error)),
            }
            Ok(Attempt::Queued)
        };
        let blocks = || {
            let plans = (0..n_engines).filter_map(|it| self.plan(it, cudnn));
            let workspace = plans.map(|it| it.workspace_bytes).max().unwrap_or(0);
            let workspace =
                (self.converted_bytes() + workspace).max(generated.most_workspace_bytes());
            let [left, right, result] = operand_bytes(convolution, types);
            // The third input is at most as large as the result.
            let third = if epilogue.is_plain() { 0 } else { result };
            vec![left, right, third, result, workspace]
        };
        let requirements = requirements(self.precision, epilogue);
        let blocks = (blocks, &requirements[..]);
        let chosen = tuner.fastest(&kernel, n_engines + n_rivals, blocks, run)?;
        if chosen >= n_engines {
            return Ok(None);
        }
        match self.plan(chosen, cudnn) {
            Some(_) => self.choose(chosen),
            None => self.choose_first(cudnn),
        }
        Ok(Some(self))
    }
}

/// Returns what engines must do besides being fast, on the blocks of left operand, right operand,
/// third input and result.
fn requirements(precision: Precision, epilogue: Epilogue) -> Vec<Requirement> {
    let of_relu = Requirement::KeepsNan { result: 3 };
    let of_single = Requirement::KeepsSinglePrecision { operands: [0, 1], result: 3 };
    let is_relu = epilogue.function == Function::Relu;
    let some = [(is_relu, of_relu), (precision == Precision::F32, of_single)];
    some.into_iter().filter(|it| it.0).map(|it| it.1).collect()
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
