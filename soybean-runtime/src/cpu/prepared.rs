//! Kernels of a program made ready for the CPU.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Kernel;

use super::{
    attention::AttentionKernel, concatenation::ConcatenationKernel, contraction::ContractionKernel,
    convolution::ConvolutionKernel, embedding::EmbeddingKernel, engine::Region, isa::Isa,
    map::MapKernel, padding::PaddingKernel, permutation::PermutationKernel, pooling::PoolingKernel,
    product::Workspace, reduction::ReductionKernel,
};
use crate::{Error, ErrorKind};

/// A kernel made ready.
pub(crate) enum Prepared {
    Contract(ContractionKernel),
    Map(MapKernel),
    Reduce(ReductionKernel),
    Permute(PermutationKernel),
    Convolve(ConvolutionKernel),
    Pool(PoolingKernel),
    Pad(PaddingKernel),
    Concatenate(ConcatenationKernel),
    Embed(EmbeddingKernel),
    Attend(AttentionKernel),
    /// Collectives are the communicator's.
    Communicate,
}

/// What a kernel works on.
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a [Region],
    pub(crate) results: &'a [Region],
    pub(crate) scalars: &'a [f32],
    /// One for each thread.
    pub(crate) workspaces: &'a mut [Workspace],
    /// As long as the kernel asked for, or longer.
    pub(crate) scratch: &'a mut [f32],
}

impl Call<'_> {
    /// The regions of a kernel with this many inputs and one result.
    fn regions<const N: usize>(&self) -> Result<([Region; N], Region), Error> {
        let inputs = <[Region; N]>::try_from(self.inputs).map_err(|_| {
            let message = format!("expected {N} inputs, found {}", self.inputs.len());
            Error::new(ErrorKind::Program, message)
        })?;
        Ok((inputs, *self.one_result()?))
    }

    fn one_result(&self) -> Result<&Region, Error> {
        let [result] = self.results else {
            let message = format!("expected one result, found {}", self.results.len());
            return Err(Error::new(ErrorKind::Program, message));
        };
        Ok(result)
    }
}

impl Prepared {
    /// Makes a kernel ready for as many threads as there are workspaces.
    pub(crate) fn new(kernel: &Kernel, isa: Isa, workspaces: &[Workspace]) -> Self {
        let n_threads = workspaces.len();
        match kernel {
            Kernel::Contract(it) => Self::Contract(ContractionKernel::new(it, workspaces)),
            Kernel::Map(it) => Self::Map(MapKernel::new(it, isa, n_threads)),
            Kernel::Reduce(it) => Self::Reduce(ReductionKernel::new(it, isa, n_threads)),
            Kernel::Permute(it) => Self::Permute(PermutationKernel::new(it, n_threads)),
            Kernel::Convolve(it) => Self::Convolve(ConvolutionKernel::new(it, isa, n_threads)),
            Kernel::Pool(it) => Self::Pool(PoolingKernel::new(it, isa, n_threads)),
            Kernel::Pad(it) => Self::Pad(PaddingKernel::new(it, n_threads)),
            Kernel::Concatenate(it) => Self::Concatenate(ConcatenationKernel::new(it, n_threads)),
            Kernel::Embed(it) => Self::Embed(EmbeddingKernel::new(it, isa, n_threads)),
            Kernel::Attend(it) => Self::Attend(AttentionKernel::new(it, isa, n_threads)),
            Kernel::Communicate(_) => Self::Communicate,
        }
    }

    /// The scratch that it needs while it runs.
    pub(crate) fn n_scratch(&self) -> usize {
        match self {
            Self::Convolve(it) => it.n_room(),
            Self::Embed(it) => it.n_places(),
            Self::Attend(it) => it.n_partial(),
            Self::Reduce(it) => it.n_room(),
            Self::Contract(_)
            | Self::Map(_)
            | Self::Permute(_)
            | Self::Pool(_)
            | Self::Pad(_)
            | Self::Concatenate(_)
            | Self::Communicate => 0,
        }
    }

    /// Whether it takes elements of `bf16` as they are.
    pub(crate) const fn reads_bf16(&self) -> bool {
        matches!(self, Self::Map(_) | Self::Reduce(_))
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, call: Call<'_>) -> Result<(), Error> {
        let (inputs, results) = (call.inputs, call.results);
        match self {
            Self::Contract(it) => {
                let ([left, right], result) = call.regions()?;
                // SAFETY: required of the caller, as below.
                unsafe { it.run(call.workspaces, [left, right, result]) }
            }
            // SAFETY: see above.
            Self::Map(it) => unsafe { it.run(inputs, results, call.scalars) },
            Self::Reduce(it) => {
                let result = *call.one_result()?;
                // SAFETY: see above.
                unsafe { it.run(call.scratch, inputs, &result, call.scalars) }
            }
            Self::Permute(it) => {
                let ([input], result) = call.regions()?;
                // SAFETY: see above.
                unsafe { it.run(&input, &result) }
            }
            Self::Convolve(it) => {
                let ([left, right], result) = call.regions()?;
                // SAFETY: see above.
                unsafe { it.run(call.workspaces, call.scratch, [left, right, result]) }
            }
            Self::Pool(it) => {
                let result = call.one_result()?;
                // SAFETY: see above.
                unsafe { it.run(inputs, result) }
            }
            Self::Pad(it) => {
                let ([input], result) = call.regions()?;
                // SAFETY: see above.
                unsafe { it.run(&input, &result) }
            }
            Self::Concatenate(it) => {
                let result = call.one_result()?;
                // SAFETY: see above.
                unsafe { it.run(inputs, result) }
            }
            Self::Embed(it) => {
                let (inputs, result) = call.regions()?;
                // SAFETY: see above.
                unsafe { it.run(call.scratch, inputs, &result) }
            }
            Self::Attend(it) => {
                let result = *call.one_result()?;
                // SAFETY: see above.
                unsafe { it.run(call.workspaces, call.scratch, inputs, &result) }
            }
            Self::Communicate => {
                let message = "expected a kernel, found a collective".to_owned();
                Err(Error::new(ErrorKind::Program, message))
            }
        }
    }
}
