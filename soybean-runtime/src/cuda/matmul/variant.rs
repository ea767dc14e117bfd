//! One way in which cuBLASLt computes a product.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

use std::{mem::MaybeUninit, ptr};

use soybean_plan::DType;

use super::{
    CublasLt, EXPECTED_ALIGNMENT, MAX_WORKSPACE_BYTES, MatmulOperands,
    binding::{
        self as sys, CublasError, cublasComputeType_t as Compute,
        cublasLtMatmulDescAttributes_t as Attribute,
    },
    descriptor::{
        MatmulDescriptor, MatmulPreference, MatrixLayout, NOT_SUPPORTED, TRANSPOSED, data_type,
        epilogue_number, to_i64,
    },
    layout::MatmulLayout,
    transposed::TransposedOperand,
};
use crate::cuda::epilogue::Epilogue;

/// Number of algorithms that are requested.
const N_ALGORITHMS: u8 = 16;

/// The descriptors of a product.
pub(super) struct MatmulVariant {
    descriptor: MatmulDescriptor,
    /// Layouts of cuBLASLt's first and second operand and of the result.
    layouts: [MatrixLayout; 3],
    /// The operand that is transposed before.
    pub(super) transposed: Option<TransposedOperand>,
    /// The epilogue of the call. A generated kernel adds up the operand if this one does not.
    pub(super) epilogue: Epilogue,
}

impl MatmulVariant {
    /// Describes a product of left operand, right operand and result of these types.
    pub(super) fn new(
        layout: &MatmulLayout,
        [left, right, result]: [DType; 3],
        compute: Compute,
        epilogue: Epilogue,
        transposed: Option<TransposedOperand>,
    ) -> Result<Self, CublasError> {
        let MatmulLayout { order, operands: [first, second], n_batch, .. } = layout;
        let types = order.first_and_second(left, right);
        let layouts = [
            MatrixLayout::new(types[0], first, *n_batch)?,
            MatrixLayout::new(types[1], second, *n_batch)?,
            MatrixLayout::new(result, &layout.result, *n_batch)?,
        ];
        let descriptor = describe(layout, compute, epilogue, result)?;
        Ok(Self { descriptor, layouts, transposed, epilogue })
    }

    /// Returns the algorithms of the heuristic that fit, the first one expected to be the fastest.
    pub(super) fn algorithms(
        &self,
        lt: &CublasLt,
        preference: &MatmulPreference,
    ) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, CublasError> {
        // SAFETY: all fields are plain numbers, for which zero is valid.
        let mut found: [sys::cublasLtMatmulHeuristicResult_t; N_ALGORITHMS as usize] =
            unsafe { MaybeUninit::zeroed().assume_init() };
        let mut n_found = 0;
        let [first, second, result] = self.layouts.each_ref().map(MatrixLayout::raw);
        // SAFETY: all handles are valid, and there is memory for as many results as are requested.
        let asked = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                lt.raw,
                self.descriptor.raw(),
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

    /// Sets the addresses that the epilogue reads and writes.
    pub(super) fn set_epilogue_addresses(
        &self,
        operands: MatmulOperands,
    ) -> Result<(), CublasError> {
        let Self { descriptor, epilogue, .. } = self;
        if epilogue.bias.is_some() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias)?;
        }
        if epilogue.has_aux() {
            descriptor.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operands.aux)?;
        }
        Ok(())
    }

    /// Queues a call with cuBLASLt's first and second operand and the result at these addresses.
    ///
    /// # Safety
    /// The algorithm was found for this variant and handle, and the stream belongs to the same GPU.
    /// Until the product completes, the addresses and those of the epilogue hold what the layouts
    /// describe. Nothing else uses the result or the workspace, which has room for the transposed
    /// operand and then for the algorithm.
    pub(super) unsafe fn run(
        &self,
        lt: &CublasLt,
        stream: sys::cudaStream_t,
        algorithm: &sys::cublasLtMatmulHeuristicResult_t,
        [first, second, result]: [u64; 3],
        workspace: u64,
    ) -> Result<(), CublasError> {
        let mut operands = [first, second];
        let mut own_workspace = workspace;
        if let Some(copy) = &self.transposed {
            let from = std::mem::replace(&mut operands[copy.number], workspace);
            own_workspace += copy.n_bytes as u64;
            // SAFETY: required of the caller.
            unsafe { copy.run(lt, stream, from, workspace) }?;
        }
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [first_layout, second_layout, result_layout] =
            self.layouts.each_ref().map(MatrixLayout::raw);
        // SAFETY: required of the caller.
        unsafe {
            sys::cublasLtMatmul(
                lt.raw,
                self.descriptor.raw(),
                ptr::from_ref(&one).cast(),
                operands[0] as *const _,
                first_layout,
                operands[1] as *const _,
                second_layout,
                ptr::from_ref(&zero).cast(),
                result as *const _,
                result_layout,
                result as *mut _,
                result_layout,
                &raw const algorithm.algo,
                own_workspace as *mut _,
                algorithm.workspaceSize,
                stream,
            )
        }
        .result()
    }
}

/// Returns the descriptor of a product with an epilogue.
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
