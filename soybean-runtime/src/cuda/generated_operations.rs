//! Generated operations of a kernel call on a GPU.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use soybean_codegen::{self as codegen, Address};

use super::{
    kernels::KernelOperands,
    memory::fill,
    module::{Function, LaunchConfig, Module},
    source::GeneratedCall,
    stream::Stream,
};
use crate::Error;

/// The part of a call that a library leaves to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    Nothing,
    /// The operations that [`GeneratedOperations::run_remaining`] queues.
    Operations,
}

/// The generated operations of a call.
#[derive(Default)]
pub(crate) struct GeneratedOperations {
    /// The operations that a library call leaves.
    remaining: Variant,
    /// The variants of the whole kernel; none if a library certainly computes it.
    variants: Vec<Variant>,
}

/// A variant of a kernel, or of a part of it.
#[derive(Default)]
struct Variant {
    operations: Vec<DeviceOperation>,
    workspace_bytes: usize,
}

enum DeviceOperation {
    Launch { function: Function, threads: LaunchConfig, arguments: Vec<Address> },
    Fill { target: Address, n_bytes: usize, value: u8 },
}

impl GeneratedOperations {
    /// Finds the functions of a call in their module.
    pub(crate) fn new(module: &Module, made: GeneratedCall) -> Result<Self, Error> {
        let variant = |it: codegen::Generated| {
            let operations = operations(module, it.operations)?;
            Ok(Variant { operations, workspace_bytes: it.workspace_bytes })
        };
        Ok(Self {
            remaining: variant(made.remaining)?,
            variants: made.variants.into_iter().map(variant).collect::<Result<_, Error>>()?,
        })
    }

    /// Returns the number of variants of the whole kernel.
    pub(crate) const fn n_variants(&self) -> usize {
        self.variants.len()
    }

    /// Returns the workspace of a variant in bytes.
    pub(crate) fn workspace_bytes(&self, variant: usize) -> usize {
        self.variants[variant].workspace_bytes
    }

    /// Returns the workspace in bytes of what a library call leaves.
    pub(crate) const fn remaining_workspace_bytes(&self) -> usize {
        self.remaining.workspace_bytes
    }

    /// Returns the workspace in bytes of the variant that needs the most.
    pub(crate) fn most_workspace_bytes(&self) -> usize {
        self.variants.iter().map(|it| it.workspace_bytes).max().unwrap_or(0)
    }

    /// Queues what a library call leaves.
    ///
    /// # Safety
    /// As [`GpuKernels::run`](super::kernels::GpuKernels::run).
    pub(crate) unsafe fn run_remaining(
        &self,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe { self.remaining.run(stream, operands) }
    }

    /// Queues a variant of the whole kernel.
    ///
    /// # Safety
    /// As [`GpuKernels::run`](super::kernels::GpuKernels::run).
    pub(crate) unsafe fn run_variant(
        &self,
        variant: usize,
        stream: &Stream,
        operands: KernelOperands<'_>,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe { self.variants[variant].run(stream, operands) }
    }
}

impl Variant {
    /// Queues the operations on a stream.
    ///
    /// # Safety
    /// As [`GpuKernels::run`](super::kernels::GpuKernels::run).
    unsafe fn run(&self, stream: &Stream, operands: KernelOperands<'_>) -> Result<(), Error> {
        // SAFETY: required of the caller.
        self.operations.iter().try_for_each(|it| unsafe { it.run(stream, operands) })
    }
}

impl DeviceOperation {
    /// Queues the operation on a stream.
    ///
    /// # Safety
    /// As [`GpuKernels::run`](super::kernels::GpuKernels::run).
    unsafe fn run(&self, stream: &Stream, operands: KernelOperands<'_>) -> Result<(), Error> {
        match self {
            Self::Launch { function, threads, arguments } => {
                let arguments = arguments.iter().map(|it| operands.address(*it)).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?;
                // SAFETY: the arguments match the generated source; their targets are required of
                // the caller.
                unsafe { function.launch(stream, *threads, &arguments) }
            }
            Self::Fill { target, n_bytes, value } => {
                // SAFETY: as above.
                unsafe { fill(stream, operands.address(*target)?, *value, *n_bytes) }
            }
        }
    }
}

fn operations(
    module: &Module,
    made: Vec<codegen::Operation>,
) -> Result<Vec<DeviceOperation>, Error> {
    let ready = |operation| match operation {
        codegen::Operation::Launch(launch) => {
            let codegen::Launch { function, grid, block, shared_bytes, arguments } = launch;
            let function = module.function(&function, shared_bytes)?;
            let threads = LaunchConfig { grid, block, shared_bytes };
            Ok(DeviceOperation::Launch { function, threads, arguments })
        }
        codegen::Operation::Fill { target, n_bytes, value } => {
            Ok(DeviceOperation::Fill { target, n_bytes, value })
        }
    };
    made.into_iter().map(ready).collect()
}
