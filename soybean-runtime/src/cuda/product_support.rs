//! The epilogues that the libraries of this machine support.

use std::sync::Arc;

use soybean_plan::{DType, Kernel, Precision};

use super::{
    convolution::takes_epilogue,
    epilogue::Epilogue,
    gpu::Gpu,
    libraries::installation,
    matmul::{CublasLt, MatmulPlan},
};
use crate::Error;

/// The epilogues of products that cuBLASLt and cuDNN support.
pub(crate) struct ProductSupport {
    lt: CublasLt,
    precision: Precision,
}

impl ProductSupport {
    /// Creates a handle of cuBLASLt on a GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>, precision: Precision) -> Result<Self, Error> {
        Ok(Self { lt: CublasLt::new(gpu)?, precision })
    }

    /// Returns whether a library computes the kernel with this epilogue.
    pub(crate) fn includes(&self, kernel: &Kernel, types: [DType; 3], epilogue: Epilogue) -> bool {
        match kernel {
            Kernel::Contract(it) => {
                let product = MatmulPlan::new(&self.lt, it, types, self.precision, epilogue);
                product.is_ok_and(|it| it.is_some())
            }
            Kernel::Convolve(it) => {
                takes_epilogue(it, types, epilogue) && installation().cudnn().is_ok()
            }
            _ => false,
        }
    }
}
