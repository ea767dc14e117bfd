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

use std::{mem::MaybeUninit, ptr, sync::Arc};

use soybean_plan::{Contraction, DType, Precision};

use self::{
    binding::{
        self as sys, CublasError, Status, cublasComputeType_t as Compute,
        cublasLtMatmulDescAttributes_t as Attribute,
    },
    descriptor::{
        MatmulDescriptor, MatmulPreference, MatrixLayout, NOT_SUPPORTED, TRANSPOSED, data_type,
        epilogue_number, to_i64,
    },
    layout::{MatmulLayout, OperandOrder, candidate_layouts},
    transposed::{TransposedOperand, lies_across_the_depth},
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

/// Number of algorithms that are requested.
const N_ALGORITHMS: u8 = 16;

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

/// The descriptors of a product.
struct MatmulVariant {
    descriptor: MatmulDescriptor,
    /// Layouts of cuBLASLt's first and second operand and of the result.
    layouts: [MatrixLayout; 3],
    /// The operand that is transposed before.
    transposed: Option<TransposedOperand>,
    /// The epilogue of the call. A generated kernel adds up the operand if this one does not.
    epilogue: Epilogue,
}

/// An algorithm for a variant.
struct MatmulAlgorithm {
    /// The number of the variant.
    variant: usize,
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
        let [left, right, result] = self.types;
        let MatmulLayout { order, operands: [first, second], n_batch, .. } = layout;
        let types = order.first_and_second(left, right);
        let descriptor = describe(layout, self.compute, epilogue, result)?;
        let layouts = [
            MatrixLayout::new(types[0], first, *n_batch)?,
            MatrixLayout::new(types[1], second, *n_batch)?,
            MatrixLayout::new(result, &layout.result, *n_batch)?,
        ];
        let [at_left, at_right, at_result] = alignments(&self.calls);
        let [first, second] = order.first_and_second(at_left, at_right);
        let preference = MatmulPreference::new(MAX_WORKSPACE_BYTES, [first, second, at_result])?;
        let found = search(lt, &descriptor, &layouts, &preference)?;
        let variant = self.variants.len();
        self.algorithms.extend(found.into_iter().map(|found| MatmulAlgorithm { variant, found }));
        self.variants.push(MatmulVariant { descriptor, layouts, transposed, epilogue });
        Ok(())
    }

    /// Returns the workspace in bytes that [`Self::run`] needs.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes_of(&self.algorithms[self.chosen])
    }

    /// Returns the workspace in bytes of an algorithm: the copy of an operand, and then its own.
    fn workspace_bytes_of(&self, algorithm: &MatmulAlgorithm) -> usize {
        let copy = self.variants[algorithm.variant].transposed.as_ref();
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
        let MatmulAlgorithm { variant, found: algorithm } = &self.algorithms[number];
        let MatmulVariant { descriptor, layouts, transposed, epilogue } = &self.variants[*variant];
        let refused = |error| cublas_error("a matrix product", error);
        let raw = stream.raw()?;
        if epilogue.bias.is_some() {
            descriptor
                .set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias)
                .map_err(refused)?;
        }
        if epilogue.has_aux() {
            descriptor
                .set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operands.aux)
                .map_err(refused)?;
        }
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [first_layout, second_layout, result_layout] =
            layouts.each_ref().map(MatrixLayout::raw);
        let after_copy = workspace + transposed.as_ref().map_or(0, |it| it.n_bytes as u64);
        for [at_left, at_right, at_result] in &self.calls {
            let (left, right) = (operands.left + at_left, operands.right + at_right);
            let mut addresses = self.layout.order.first_and_second(left, right);
            if let Some(copy) = transposed {
                let from = std::mem::replace(&mut addresses[copy.number], workspace);
                // SAFETY: required of the caller.
                unsafe { copy.run(lt, raw.cast(), from, workspace) }.map_err(refused)?;
            }
            let [first, second] = addresses;
            let result = operands.result + at_result;
            // SAFETY: descriptors and algorithm were found together for this handle; the addresses
            // are required of the caller.
            unsafe {
                sys::cublasLtMatmul(
                    lt.raw,
                    descriptor.raw(),
                    ptr::from_ref(&one).cast(),
                    first as *const _,
                    first_layout,
                    second as *const _,
                    second_layout,
                    ptr::from_ref(&zero).cast(),
                    result as *const _,
                    result_layout,
                    result as *mut _,
                    result_layout,
                    &raw const algorithm.algo,
                    after_copy as *mut _,
                    algorithm.workspaceSize,
                    raw.cast(),
                )
            }
            .result()
            .map_err(refused)?;
        }
        let is_whole = *epilogue == self.epilogue;
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

fn describe(
    layout: &MatmulLayout,
    compute: Compute,
    epilogue: Epilogue,
    result: DType,
) -> Result<MatmulDescriptor, CublasError> {
    let descriptor = MatmulDescriptor::new(compute)?;
    let transposed = layout.operands.map(|it| i32::from(it.is_transposed) * TRANSPOSED);
    descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed[0])?;
    descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposed[1])?;
    let number = epilogue_number(epilogue).ok_or(NOT_SUPPORTED)?;
    descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &number)?;
    // The heuristic needs to see that addresses will be set, and their alignment.
    let some_address = EXPECTED_ALIGNMENT as u64;
    if let Some(dtype) = epilogue.bias {
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &data_type(dtype)?)?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some_address)?;
        if layout.n_batch > 1 {
            let stride = to_i64(epilogue.bias_stride)?;
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &stride)?;
        }
    }
    let (rows, columns) = (layout.result.columns, layout.result.rows);
    if let Some(aux) = epilogue.aux(rows, columns, result) {
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &to_i64(aux.row)?)?;
        descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &some_address)?;
    }
    Ok(descriptor)
}

/// Returns the alignment in bytes of left operand, right operand and result over all calls.
fn alignments(calls: &[[u64; 3]]) -> [u32; 3] {
    [0, 1, 2].map(|operand| {
        let places = calls.iter().fold(EXPECTED_ALIGNMENT as u64, |all, call| all | call[operand]);
        // The lowest set bit of all offsets.
        1 << places.trailing_zeros()
    })
}

/// Returns the algorithms of the heuristic that fit, the first one expected to be the fastest.
fn search(
    lt: &CublasLt,
    descriptor: &MatmulDescriptor,
    layouts: &[MatrixLayout; 3],
    preference: &MatmulPreference,
) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, CublasError> {
    // SAFETY: all fields are plain numbers, for which zero is valid.
    let mut found: [sys::cublasLtMatmulHeuristicResult_t; N_ALGORITHMS as usize] =
        unsafe { MaybeUninit::zeroed().assume_init() };
    let mut n_found = 0;
    let [first, second, result] = layouts.each_ref().map(MatrixLayout::raw);
    // SAFETY: all handles are valid, and there is memory for as many results as are requested.
    let asked = unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            lt.raw,
            descriptor.raw(),
            first,
            second,
            result,
            result,
            preference.raw(),
            N_ALGORITHMS.into(),
            found.as_mut_ptr(),
            &mut n_found,
        )
    };
    asked.result()?;
    let n_found = usize::try_from(n_found).unwrap_or(0);
    let fits = |it: &&sys::cublasLtMatmulHeuristicResult_t| {
        it.state.result().is_ok() && it.workspaceSize <= MAX_WORKSPACE_BYTES
    };
    let found: Vec<_> = found.iter().take(n_found).filter(fits).copied().collect();
    if found.is_empty() { Err(NOT_SUPPORTED) } else { Ok(found) }
}

/// Converts an error of cuBLASLt.
fn cublas_error(what: &str, error: CublasError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
