//! Descriptors of cuBLASLt for matrices and products, destroyed on drop.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

use cudarc::cublaslt::{
    result::{self, CublasError},
    sys,
};
use soybean_plan::DType;

use super::layout::StoredMatrix;

/// Layout of a batch of matrices.
pub(super) struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    pub(super) fn new(
        dtype: DType,
        stored: &StoredMatrix,
        n_batch: usize,
    ) -> Result<Self, CublasError> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let StoredMatrix { rows, columns, leading, batch, .. } = *stored;
        let (rows, columns, leading) = (rows as u64, columns as u64, to_i64(leading)?);
        let layout = Self(result::create_matrix_layout(data_type(dtype)?, rows, columns, leading)?);
        if n_batch > 1 {
            let count = i32::try_from(n_batch).map_err(|_| NOT_SUPPORTED)?;
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count)?;
            let stride = to_i64(batch)?;
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride)?;
        }
        Ok(layout)
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatrixLayout_t {
        self.0
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatrixLayoutAttribute_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let place = std::ptr::from_ref(value).cast();
        // SAFETY: the layout is valid, and cuBLASLt copies the bytes of the value.
        unsafe { result::set_matrix_layout_attribute(self.0, attribute, place, size_of::<T>()) }
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// Descriptor of a product, apart from the matrices.
pub(super) struct MatmulDescriptor(sys::cublasLtMatmulDesc_t);

impl MatmulDescriptor {
    pub(super) fn new(compute: sys::cublasComputeType_t) -> Result<Self, CublasError> {
        result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map(Self)
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatmulDesc_t {
        self.0
    }

    pub(super) fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let place = std::ptr::from_ref(value).cast();
        // SAFETY: the descriptor is valid, and cuBLASLt copies the bytes of the value.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, place, size_of::<T>()) }
    }
}

impl Drop for MatmulDescriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Requirements for the search of an algorithm.
pub(super) struct MatmulPreference(sys::cublasLtMatmulPreference_t);

impl MatmulPreference {
    /// Sets the maximum workspace, and the alignments of first operand, second operand and result.
    pub(super) fn new(workspace_bytes: usize, alignments: [u32; 3]) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Self(result::create_matmul_pref()?);
        preference
            .set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &(workspace_bytes as u64))?;
        let [first, second, result] = alignments;
        for (attribute, alignment) in [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result),
        ] {
            preference.set(attribute, &alignment)?;
        }
        Ok(preference)
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatmulPreference_t {
        self.0
    }

    fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let place = std::ptr::from_ref(value).cast();
        // SAFETY: the preference is valid, and cuBLASLt copies the bytes of the value.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, place, size_of::<T>()) }
    }
}

impl Drop for MatmulPreference {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// The error for requests that cuBLASLt does not support.
pub(super) const NOT_SUPPORTED: CublasError =
    CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);

/// Returns the CUDA data type of an element type.
pub(super) fn data_type(dtype: DType) -> Result<sys::cudaDataType_t, CublasError> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType_t::CUDA_R_32F),
        DType::Bf16 => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        DType::I32 => Err(NOT_SUPPORTED),
    }
}

pub(super) fn to_i64(number: usize) -> Result<i64, CublasError> {
    i64::try_from(number).map_err(|_| NOT_SUPPORTED)
}
