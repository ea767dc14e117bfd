//! Kernels of a program made ready for the CPU.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Kernel;

use super::{
    contraction::ContractionKernel, convolution::ConvolutionKernel, engine::Region, isa::Isa,
    map::MapKernel, permutation::PermutationKernel, pooling::PoolingKernel, product::Workspace,
    reduction::ReductionKernel,
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
            Kernel::Communicate(_) => Self::Communicate,
            _ => Self::Communicate,
        }
    }

    /// The scratch that it needs while it runs.
    pub(crate) fn n_scratch(&self) -> usize {
        match self {
            Self::Convolve(it) => it.n_turned(),
            _ => 0,
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, call: Call<'_>) -> Result<(), Error> {
        // SAFETY: the caller vouches for the regions.
        unsafe {
            match self {
                Self::Contract(it) => {
                    let ([left, right], result) = call.regions()?;
                    it.run(call.workspaces, [left, right, result])
                }
                Self::Map(it) => it.run(call.inputs, call.results, call.scalars),
                Self::Reduce(it) => it.run(call.inputs, call.one_result()?, call.scalars),
                Self::Permute(it) => {
                    let ([input], result) = call.regions()?;
                    it.run(&input, &result)
                }
                Self::Convolve(it) => {
                    let ([left, right], result) = call.regions()?;
                    it.run(call.workspaces, call.scratch, [left, right, result])
                }
                Self::Pool(it) => it.run(call.inputs, call.one_result()?),
                Self::Communicate => {
                    let message = "expected a kernel, found a collective".to_owned();
                    Err(Error::new(ErrorKind::Program, message))
                }
            }
        }
    }
}
