//! Matrix products by cuBLASLt.
//!
//! Descriptors and algorithms are chosen once for each contraction of a program, before the first
//! step.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

mod autotune;
pub(super) mod binding;
mod descriptor;
mod layout;
mod transposed;
mod variant;

use std::{ptr, sync::Arc};

use soybean_plan::{Contraction, DType, Precision};

use self::{
    binding::{self as sys, CublasError, Status, cublasComputeType_t as Compute},
    descriptor::{MatmulPreference, epilogue_number},
    layout::{MatmulLayout, OperandOrder, candidate_layouts},
    transposed::{TransposedOperand, lies_across_the_depth},
    variant::MatmulVariant,
};
use super::{
    capture_lock::not_capturing, epilogue::Epilogue, generated_operations::Remaining, gpu::Gpu,
    libraries::installation, stream::Stream,
};
use crate::{Error, ErrorKind};

/// Maximum workspace of an algorithm in bytes, the default of cuBLAS on recent GPUs.
pub(crate) const MAX_WORKSPACE_BYTES: usize = 32 << 20;

/// Alignment in bytes of buffers that cuBLASLt may expect. Its algorithms need no more.
const EXPECTED_ALIGNMENT: usize = 64;

/// A cuBLASLt handle of one GPU.
pub(crate) struct CublasLt {
    gpu: Arc<Gpu>,
    raw: sys::cublasLtHandle_t,
}

// SAFETY: a handle may be used from any thread whose current context is the handle's. Every call
// here makes it current.
unsafe impl Send for CublasLt {}

impl CublasLt {
    /// Creates a cuBLASLt handle for a GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        installation().cublaslt()?;
        gpu.bind()?;
        let _no_capture = not_capturing();
        let mut raw = ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::cublasLtCreate(&mut raw) }
            .result()
            .map_err(|error| cublas_error(&format!("starting cuBLASLt on {gpu:?}"), error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: made in `new`. After a fatal error cuBLASLt refuses, and there is nothing
            // left to destroy.
            let _refused = unsafe { sys::cublasLtDestroy(self.raw) };
        }
    }
}

/// A contraction of a program with its descriptors and algorithm.
pub(crate) struct MatmulPlan {
    layout: MatmulLayout,
    /// Element types of left operand, right operand and result.
    types: [DType; 3],
    compute: Compute,
    /// The product of the operands as they lie with its whole epilogue, and the alternatives.
    variants: Vec<MatmulVariant>,
    /// Algorithms that compute it, in the order of variants and then in cuBLASLt's, and the number
    /// of the one to run.
    algorithms: Vec<MatmulAlgorithm>,
    chosen: usize,
    /// Byte offsets of left, right and result for each call.
    calls: Vec<[u64; 3]>,
    epilogue: Epilogue,
}

// SAFETY: this value owns its descriptors.
unsafe impl Send for MatmulPlan {}

/// An algorithm for a variant.
struct MatmulAlgorithm {
    variant_number: usize,
    found: sys::cublasLtMatmulHeuristicResult_t,
}

/// Device addresses of the operands of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatmulOperands {
    /// The left operand.
    pub(crate) left: u64,
    /// The right operand.
    pub(crate) right: u64,
    /// The result.
    pub(crate) result: u64,
    /// Vector of [`Epilogue::bias`], or 0.
    pub(crate) bias: u64,
    /// Buffer of [`Epilogue::aux`], or 0.
    pub(crate) aux: u64,
}

impl MatmulPlan {
    /// Plans the contraction for these element types of left operand, right operand and result.
    /// Returns `None` if cuBLASLt cannot compute it with this epilogue and without copies of the
    /// operands.
    pub(crate) fn new(
        lt: &CublasLt,
        contraction: &Contraction,
        types: [DType; 3],
        precision: Precision,
        epilogue: Epilogue,
    ) -> Result<Option<Self>, Error> {
        lt.gpu.bind()?;
        let Some(compute) = compute(types, precision) else { return Ok(None) };
        if !epilogue.is_accurate_in(precision) {
            return Ok(None);
        }
        for layout in candidate_layouts(contraction) {
            if !epilogue.is_plain() && !takes_epilogue(&layout, epilogue) {
                continue;
            }
            match Self::with(lt, layout, types, compute, epilogue) {
                Ok(product) => return Ok(Some(product)),
                // A generated kernel computes products that cuBLASLt does not support.
                Err(CublasError(
                    Status::CUBLAS_STATUS_NOT_SUPPORTED | Status::CUBLAS_STATUS_INVALID_VALUE,
                )) => {}
                Err(error) => return Err(cublas_error("planning a matrix product", error)),
            }
        }
        Ok(None)
    }

    fn with(
        lt: &CublasLt,
        layout: MatmulLayout,
        types: [DType; 3],
        compute: Compute,
        epilogue: Epilogue,
    ) -> Result<Self, CublasError> {
        let [left, right, result] = types;
        let in_bytes = |[at_left, at_right, at_result]: &[usize; 3]| {
            [at_left * left.bytes(), at_right * right.bytes(), at_result * result.bytes()]
        };
        let calls = layout.calls.iter().map(in_bytes).map(|it| it.map(|it| it as u64)).collect();
        let (variants, algorithms) = (Vec::new(), Vec::new());
        let mut this = Self {
            layout: layout.clone(),
            types,
            compute,
            variants,
            algorithms,
            chosen: 0,
            calls,
            epilogue,
        };
        this.add_variant(lt, &layout, epilogue, None)?;
        Ok(this)
    }

    /// Adds what may be faster: with a transposed copy of an operand if the workspace suffices, and
    /// with a kernel that adds up an operand. What cuBLASLt does not support is left out.
    pub(crate) fn add_alternatives(
        &mut self,
        lt: &CublasLt,
        max_workspace_bytes: usize,
    ) -> Result<(), Error> {
        lt.gpu.bind()?;
        let plain = self.epilogue.summed_operand().map(|_| Epilogue::default());
        if let Some(plain) = plain {
            let _unsupported = self.add_variant(lt, &self.layout.clone(), plain, None);
        }
        let is_tf32 = self.compute == Compute::CUBLAS_COMPUTE_32F_FAST_TF32;
        if !is_tf32 || !lies_across_the_depth(&self.layout) {
            return Ok(());
        }
        for epilogue in [Some(self.epilogue), plain].into_iter().flatten() {
            for number in [0, 1] {
                // Both operands are in `f32`.
                let made = TransposedOperand::new(&self.layout, number, DType::F32);
                if let Ok((copy, layout)) = made
                    && copy.n_bytes + MAX_WORKSPACE_BYTES <= max_workspace_bytes
                {
                    let _unsupported = self.add_variant(lt, &layout, epilogue, Some(copy));
                }
            }
        }
        Ok(())
    }

    /// Adds the algorithms for a layout of the operands.
    fn add_variant(
        &mut self,
        lt: &CublasLt,
        layout: &MatmulLayout,
        epilogue: Epilogue,
        transposed: Option<TransposedOperand>,
    ) -> Result<(), CublasError> {
        let variant = MatmulVariant::new(layout, self.types, self.compute, epilogue, transposed)?;
        let [at_left, at_right, at_result] = alignments(&self.calls);
        let [first, second] = layout.order.first_and_second(at_left, at_right);
        let preference = MatmulPreference::new(MAX_WORKSPACE_BYTES, [first, second, at_result])?;
        let found = variant.algorithms(lt, &preference)?;
        let variant_number = self.variants.len();
        let algorithms = found.into_iter().map(|found| MatmulAlgorithm { variant_number, found });
        self.algorithms.extend(algorithms);
        self.variants.push(variant);
        Ok(())
    }

    /// Returns the workspace in bytes that [`Self::run`] needs.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes_of(&self.algorithms[self.chosen])
    }

    /// Returns the workspace in bytes of an algorithm: the copy of an operand, and then its own.
    fn workspace_bytes_of(&self, algorithm: &MatmulAlgorithm) -> usize {
        let copy = self.variants[algorithm.variant_number].transposed.as_ref();
        copy.map_or(0, |it| it.n_bytes) + algorithm.found.workspaceSize
    }

    /// Queues the product on a stream. Returns whether the sums of an operand remain.
    ///
    /// # Safety
    /// The plan was made with this handle, and the stream belongs to the same GPU. Until the
    /// product completes, the addresses hold the matrices of the contraction, aligned to 64 bytes,
    /// and the operands of the epilogue. Nothing else uses the result or the workspace, which has
    /// [`Self::workspace_bytes`] bytes.
    pub(crate) unsafe fn run(
        &self,
        lt: &CublasLt,
        stream: &Stream,
        operands: MatmulOperands,
        workspace: u64,
    ) -> Result<Remaining, Error> {
        // SAFETY: required of the caller.
        unsafe { self.run_algorithm(self.chosen, lt, stream, operands, workspace) }
    }

    /// Queues the product by the algorithm of this number.
    ///
    /// # Safety
    /// As [`Self::run`], with the workspace of that algorithm.
    unsafe fn run_algorithm(
        &self,
        number: usize,
        lt: &CublasLt,
        stream: &Stream,
        operands: MatmulOperands,
        workspace: u64,
    ) -> Result<Remaining, Error> {
        let MatmulAlgorithm { variant_number, found } = &self.algorithms[number];
        let variant = &self.variants[*variant_number];
        let refused = |error| cublas_error("a matrix product", error);
        let raw = stream.raw()?;
        variant.set_epilogue_addresses(operands).map_err(refused)?;
        for [at_left, at_right, at_result] in &self.calls {
            let (left, right) = (operands.left + at_left, operands.right + at_right);
            let [first, second] = self.layout.order.first_and_second(left, right);
            let addresses = [first, second, operands.result + at_result];
            // SAFETY: the algorithm was found for this handle and variant; the rest is required of
            // the caller.
            unsafe { variant.run(lt, raw.cast(), found, addresses, workspace) }.map_err(refused)?;
        }
        let is_whole = variant.epilogue == self.epilogue;
        Ok(if is_whole { Remaining::Nothing } else { Remaining::Operations })
    }
}

/// Returns the compute type for these element types, if cuBLASLt supports them.
fn compute([left, right, result]: [DType; 3], precision: Precision) -> Option<Compute> {
    match (left, right, result) {
        (DType::F32, DType::F32, DType::F32) => Some(match precision {
            Precision::F32 => Compute::CUBLAS_COMPUTE_32F,
            Precision::Tf32 | Precision::Bf16 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        }),
        (DType::Bf16, DType::Bf16, DType::F32 | DType::Bf16) => Some(Compute::CUBLAS_COMPUTE_32F),
        _ => None,
    }
}

/// Returns the number of cuBLASLt's calls for a product, or `None` if its documentation rules the
/// product out. In contrast to a plan, this needs no library.
pub(crate) fn n_documented_calls(
    contraction: &Contraction,
    types: [DType; 3],
    precision: Precision,
    epilogue: Epilogue,
) -> Option<usize> {
    compute(types, precision)?;
    let [.., result] = types;
    let is_computed =
        epilogue.bias.is_none_or(|bias| bias == result) && epilogue.is_accurate_in(precision);
    let is_possible =
        |it: &&MatmulLayout| epilogue.is_plain() || takes_epilogue(it, epilogue) && is_computed;
    candidate_layouts(contraction).iter().find(is_possible).map(|it| it.calls.len())
}

/// Returns true if cuBLASLt can apply an epilogue: the bias is along the columns, and the auxiliary
/// buffer is one matrix.
fn takes_epilogue(layout: &MatmulLayout, epilogue: Epilogue) -> bool {
    layout.order == OperandOrder::RightLeft
        && layout.calls.len() == 1
        && epilogue_number(epilogue).is_some()
        && (layout.n_batch == 1 || !epilogue.has_aux())
}

/// Returns the alignment in bytes of left operand, right operand and result over all calls.
fn alignments(calls: &[[u64; 3]]) -> [u32; 3] {
    [0, 1, 2].map(|operand| {
        let places = calls.iter().fold(EXPECTED_ALIGNMENT as u64, |all, call| all | call[operand]);
        // The lowest set bit of all offsets.
        1 << places.trailing_zeros()
    })
}

/// Converts an error of cuBLASLt.
fn cublas_error(what: &str, error: CublasError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
