//! The preparation and dispatch of kernels on the CPU.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{DType, Kernel};

use super::{interpreter::element, isa::Isa, product::Workspace, region::Region};
use crate::{Error, ErrorKind};

/// A descriptor of a kernel that the CPU can run.
///
/// Each file of this folder that is named after a kernel implements it for that descriptor.
pub(crate) trait Prepare {
    /// Chooses loops and computes sizes, once for all runs of the kernel.
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel>;
}

/// The threads of a rank that share the work of a kernel.
pub(crate) struct Threads<'a> {
    pub(crate) isa: Isa,
    /// One for each thread.
    pub(crate) workspaces: &'a [Workspace],
}

impl Threads<'_> {
    pub(crate) const fn len(&self) -> usize {
        self.workspaces.len()
    }
}

/// A kernel prepared for the threads of a rank.
pub(crate) trait CpuKernel: Send {
    /// Returns the number of elements of scratch space that a run needs.
    fn n_scratch(&self) -> usize {
        0
    }

    /// Returns true if the kernel reads and writes elements of `bf16` itself.
    ///
    /// Other kernels get inputs that are converted to `f32`.
    fn supports_bf16(&self) -> bool {
        false
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error>;

    /// Runs the kernel, and returns the number of the first result that is not finite. For some
    /// results, `before` has regions with their elements before the step, in the same order.
    /// Elementwise kernels leave these where a result is not finite.
    ///
    /// # Safety
    /// As [`Self::launch`], also for the regions `before`.
    unsafe fn launch_checked(
        &mut self,
        arguments: Arguments<'_>,
        _before: &[Option<Region>],
    ) -> Result<Option<usize>, Error> {
        let results = arguments.results;
        // SAFETY: required of the caller.
        unsafe { self.launch(arguments) }?;
        let is_finite = |it: &Region| {
            // SAFETY: the result has these elements, and nobody else uses it.
            it.dtype == DType::I32
                || (0..it.n_elements).all(|at| unsafe { element(it, at) }.is_finite())
        };
        Ok(results.iter().position(|it| !is_finite(it)))
    }
}

/// The memory that a kernel works on.
pub(crate) struct Arguments<'a> {
    pub(crate) inputs: &'a [Region],
    pub(crate) results: &'a [Region],
    pub(crate) scalars: &'a [f32],
    /// One for each thread.
    pub(crate) workspaces: &'a mut [Workspace],
    /// At least as long as [`CpuKernel::n_scratch`].
    pub(crate) scratch: &'a mut [f32],
}

impl Arguments<'_> {
    /// Returns the inputs and the result of a kernel with `N` inputs and one result.
    pub(crate) fn regions<const N: usize>(&self) -> Result<([Region; N], Region), Error> {
        let inputs = <[Region; N]>::try_from(self.inputs).map_err(|_| {
            let message = format!("expected {N} inputs, found {}", self.inputs.len());
            Error::new(ErrorKind::Program, message)
        })?;
        Ok((inputs, self.one_result()?))
    }

    /// Returns the result of a kernel with one result.
    pub(crate) fn one_result(&self) -> Result<Region, Error> {
        let [result] = self.results else {
            let message = format!("expected one result, found {}", self.results.len());
            return Err(Error::new(ErrorKind::Program, message));
        };
        Ok(*result)
    }
}

macro_rules! prepare_any {
    ($($file:ident: $variant:ident($($type:ident),*),)*) => {
        /// Prepares a kernel. Returns none for collectives, which communicators run.
        pub(crate) fn prepare(kernel: &Kernel, threads: &Threads<'_>) -> Option<Box<dyn CpuKernel>> {
            match kernel {
                $(Kernel::$variant(it) => Some(it.prepare(threads)),)*
                Kernel::Communicate(_) => None,
            }
        }
    };
}

soybean_plan::for_each_kernel!(prepare_any);
