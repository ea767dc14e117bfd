//! Products with a transposed copy of an operand.
//!
//! Tensor cores of compute capability 9.0 read both operands from shared memory, and transpose only
//! numbers of 16 bits there (PTX ISA, `wgmma`). In `tf32` the gradient of a weight has two operands
//! whose contiguous dim is not the depth, and cuBLASLt computes it by slower instructions. On an
//! H200 a product of 8192 x 2048 x 8192 takes 1163 microseconds so, and 708 after 43 for a copy.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

use std::ptr;

use soybean_plan::{BUFFER_ALIGNMENT, DType};

use super::{
    CublasLt,
    binding::{self as sys, CublasError},
    descriptor::{MatrixLayout, TransformDescriptor},
    layout::{MatmulLayout, StoredMatrix},
};

/// A transposed copy of an operand, at the beginning of the workspace.
pub(super) struct TransposedOperand {
    /// The number of cuBLASLt's operand.
    pub(super) number: usize,
    /// The bytes of the copy, a multiple of the alignment of buffers.
    pub(super) n_bytes: usize,
    descriptor: TransformDescriptor,
    from: MatrixLayout,
    to: MatrixLayout,
}

impl TransposedOperand {
    /// Plans the copy of an operand of this type, and returns it with the layout of the product
    /// that reads it.
    pub(super) fn new(
        layout: &MatmulLayout,
        number: usize,
        dtype: DType,
    ) -> Result<(Self, MatmulLayout), CublasError> {
        let stored = layout.operands[number];
        // A matrix that the whole batch shares is copied once.
        let n_copies = if stored.batch == 0 { 1 } else { layout.n_batch };
        let copied = StoredMatrix {
            is_transposed: !stored.is_transposed,
            rows: stored.columns,
            columns: stored.rows,
            leading: stored.columns,
            batch: if stored.batch == 0 { 0 } else { stored.rows * stored.columns },
        };
        let n_bytes = n_copies * stored.rows * stored.columns * dtype.bytes();
        let copy = Self {
            number,
            n_bytes: n_bytes.next_multiple_of(BUFFER_ALIGNMENT),
            descriptor: TransformDescriptor::transposing()?,
            from: MatrixLayout::new(dtype, &stored, n_copies)?,
            to: MatrixLayout::new(dtype, &copied, n_copies)?,
        };
        let mut layout = layout.clone();
        layout.operands[number] = copied;
        Ok((copy, layout))
    }

    /// Queues the copy on a stream.
    ///
    /// # Safety
    /// The stream belongs to the GPU of the handle. Until the copy completes, the first address
    /// holds the operand, and nothing else uses the bytes of the copy at the second one.
    pub(super) unsafe fn run(
        &self,
        lt: &CublasLt,
        stream: sys::cudaStream_t,
        from: u64,
        to: u64,
    ) -> Result<(), CublasError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: the layouts describe the memory at the addresses, as required of the caller;
        // there is no second operand.
        unsafe {
            sys::cublasLtMatrixTransform(
                lt.raw,
                self.descriptor.raw(),
                ptr::from_ref(&one).cast(),
                from as *const _,
                self.from.raw(),
                ptr::from_ref(&zero).cast(),
                ptr::null(),
                ptr::null_mut(),
                to as *mut _,
                self.to.raw(),
                stream,
            )
        }
        .result()
    }
}

/// Returns whether the contiguous dim of neither operand is the depth, in a single call.
pub(super) fn lies_across_the_depth(layout: &MatmulLayout) -> bool {
    let [first, second] = layout.operands;
    !first.is_transposed && second.is_transposed && layout.calls.len() == 1
}
