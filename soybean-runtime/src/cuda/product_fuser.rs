//! Fusion of a program's products with their epilogues, as far as the libraries of this machine
//! support them.

use std::sync::Arc;

use soybean_plan::{Kernel, Step};

use super::{
    convolution::takes_epilogue,
    device_program::DeviceProgram,
    epilogue::{Fused, fuse},
    gpu::Gpu,
    libraries::installation,
    matmul::{CublasLt, MatmulPlan},
};
use crate::Error;

/// Fusion of products with their epilogues, as far as cuBLASLt and cuDNN support them.
pub(crate) struct ProductFuser<'a> {
    lt: CublasLt,
    program: &'a DeviceProgram,
}

impl<'a> ProductFuser<'a> {
    /// Creates a handle of cuBLASLt on a GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>, program: &'a DeviceProgram) -> Result<Self, Error> {
        Ok(Self { lt: CublasLt::new(gpu)?, program })
    }

    /// Fuses the steps of a phase.
    pub(crate) fn fuse(&mut self, steps: &[Step]) -> Fused {
        let Self { lt, program: DeviceProgram { program, copies, .. } } = self;
        let (tables, kernels) = (&program.tables, &program.kernels);
        fuse(steps, kernels, tables, copies, &mut |kernel, types, epilogue| match kernels
            .get(kernel)
        {
            Some(Kernel::Contract(it)) => {
                let product = MatmulPlan::new(lt, it, types, tables.precision, epilogue);
                product.is_ok_and(|it| it.is_some())
            }
            Some(Kernel::Convolve(it)) => {
                takes_epilogue(it, types, epilogue) && installation().cudnn().is_ok()
            }
            _ => false,
        })
    }
}
