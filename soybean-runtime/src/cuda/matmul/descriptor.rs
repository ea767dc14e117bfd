//! Descriptors of cuBLASLt for matrices and products, destroyed on drop.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

use std::ptr;

use soybean_plan::DType;

use super::{
    binding::{self as sys, CublasError, Status},
    layout::StoredMatrix,
};
use crate::cuda::epilogue::{Epilogue, Function};

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
        let (dtype, mut raw) = (data_type(dtype)?, ptr::null_mut());
        // SAFETY: the result is a local variable.
        let created =
            unsafe { sys::cublasLtMatrixLayoutCreate(&mut raw, dtype, rows, columns, leading) };
        created.result()?;
        let layout = Self(raw);
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
        let place = ptr::from_ref(value).cast();
        // SAFETY: the layout is valid, and cuBLASLt copies the bytes of the value.
        unsafe { sys::cublasLtMatrixLayoutSetAttribute(self.0, attribute, place, size_of::<T>()) }
            .result()
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { sys::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

/// The value of `CUBLAS_OP_T`, which the bindings lack. That of `CUBLAS_OP_N` is 0.
pub(super) const TRANSPOSED: i32 = 1;

/// Descriptor of a product, apart from the matrices.
pub(super) struct MatmulDescriptor(sys::cublasLtMatmulDesc_t);

impl MatmulDescriptor {
    pub(super) fn new(compute: sys::cublasComputeType_t) -> Result<Self, CublasError> {
        let (scale, mut raw) = (sys::cudaDataType_t::CUDA_R_32F, ptr::null_mut());
        // SAFETY: the result is a local variable.
        unsafe { sys::cublasLtMatmulDescCreate(&mut raw, compute, scale) }.result()?;
        Ok(Self(raw))
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatmulDesc_t {
        self.0
    }

    pub(super) fn set<T>(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: &T,
    ) -> Result<(), CublasError> {
        let place = ptr::from_ref(value).cast();
        // SAFETY: the descriptor is valid, and cuBLASLt copies the bytes of the value.
        unsafe { sys::cublasLtMatmulDescSetAttribute(self.0, attribute, place, size_of::<T>()) }
            .result()
    }
}

impl Drop for MatmulDescriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { sys::cublasLtMatmulDescDestroy(self.0) };
    }
}

/// Descriptor of a copy of a matrix.
pub(super) struct TransformDescriptor(sys::cublasLtMatrixTransformDesc_t);

impl TransformDescriptor {
    /// Creates the descriptor of a transposed copy.
    pub(super) fn transposing() -> Result<Self, CublasError> {
        use sys::cublasLtMatrixTransformDescAttributes_t as Attribute;
        let (scale, mut raw) = (sys::cudaDataType_t::CUDA_R_32F, ptr::null_mut());
        // SAFETY: the result is a local variable.
        unsafe { sys::cublasLtMatrixTransformDescCreate(&mut raw, scale) }.result()?;
        let descriptor = Self(raw);
        let (attribute, value) = (Attribute::CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, TRANSPOSED);
        let place = ptr::from_ref(&value).cast();
        // SAFETY: the descriptor is valid, and cuBLASLt copies the bytes of the value.
        let set = unsafe {
            sys::cublasLtMatrixTransformDescSetAttribute(raw, attribute, place, size_of_val(&value))
        };
        set.result()?;
        Ok(descriptor)
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatrixTransformDesc_t {
        self.0
    }
}

impl Drop for TransformDescriptor {
    fn drop(&mut self) {
        // SAFETY: created in `transposing`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { sys::cublasLtMatrixTransformDescDestroy(self.0) };
    }
}

/// Requirements for the search of an algorithm.
pub(super) struct MatmulPreference(sys::cublasLtMatmulPreference_t);

impl MatmulPreference {
    /// Sets the maximum workspace, and the alignments of first operand, second operand and result.
    pub(super) fn new(workspace_bytes: usize, alignments: [u32; 3]) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let mut raw = ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) }.result()?;
        let preference = Self(raw);
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
        let place = ptr::from_ref(value).cast();
        // SAFETY: the preference is valid, and cuBLASLt copies the bytes of the value.
        unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(self.0, attribute, place, size_of::<T>())
        }
        .result()
    }
}

impl Drop for MatmulPreference {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuBLASLt returns, it is not used again.
        let _refused = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

/// The error for requests that cuBLASLt does not support.
pub(super) const NOT_SUPPORTED: CublasError = CublasError(Status::CUBLAS_STATUS_NOT_SUPPORTED);

/// Returns the CUDA data type of an element type.
pub(super) fn data_type(dtype: DType) -> Result<sys::cudaDataType_t, CublasError> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType_t::CUDA_R_32F),
        DType::Bf16 => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        DType::I32 => Err(NOT_SUPPORTED),
    }
}

/// Returns the number of an epilogue. `None` if cuBLASLt has none.
pub(super) fn epilogue_number(epilogue: Epilogue) -> Option<sys::cublasLtEpilogue_t> {
    use sys::cublasLtEpilogue_t as Number;
    let (without, with) = match epilogue.function {
        Function::Identity => (Number::CUBLASLT_EPILOGUE_DEFAULT, Number::CUBLASLT_EPILOGUE_BIAS),
        Function::Relu => (Number::CUBLASLT_EPILOGUE_RELU, Number::CUBLASLT_EPILOGUE_RELU_BIAS),
        Function::Gelu => (Number::CUBLASLT_EPILOGUE_GELU, Number::CUBLASLT_EPILOGUE_GELU_BIAS),
        Function::GeluAux => {
            (Number::CUBLASLT_EPILOGUE_GELU_AUX, Number::CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        }
        Function::ReluGradient => return None,
        Function::GeluGradient => {
            (Number::CUBLASLT_EPILOGUE_DGELU, Number::CUBLASLT_EPILOGUE_DGELU_BGRAD)
        }
        // The right operand is cuBLASLt's first one wherever there is an epilogue.
        Function::LeftSums => (Number::CUBLASLT_EPILOGUE_DEFAULT, Number::CUBLASLT_EPILOGUE_BGRADB),
        Function::RightSums => {
            (Number::CUBLASLT_EPILOGUE_DEFAULT, Number::CUBLASLT_EPILOGUE_BGRADA)
        }
    };
    Some(if epilogue.bias.is_some() { with } else { without })
}

pub(super) fn to_i64(number: usize) -> Result<i64, CublasError> {
    i64::try_from(number).map_err(|_| NOT_SUPPORTED)
}
