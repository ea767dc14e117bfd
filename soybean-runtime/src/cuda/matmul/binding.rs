//! The functions of cuBLASLt in use, under the names of its header.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]
#![expect(non_snake_case, reason = "names of cuBLASLt's header")]
#![expect(clippy::too_many_arguments, reason = "functions of cuBLASLt's header")]

use std::ffi::{c_int, c_void};

pub(super) use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatrixTransformDesc_t, cublasLtMatrixTransformDescAttributes_t, cudaDataType_t,
    cudaStream_t,
};

use crate::cuda::libraries::{functions, statuses};

statuses!(cublaslt, "cublasLtGetStatusName", u32, CublasError);

impl Status {
    #[cfg(test)]
    pub(super) const CUBLAS_STATUS_SUCCESS: Self = Self(0);
    pub(super) const CUBLAS_STATUS_INVALID_VALUE: Self = Self(7);
    pub(super) const CUBLAS_STATUS_NOT_SUPPORTED: Self = Self(15);
}

/// An algorithm of the heuristic.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct cublasLtMatmulHeuristicResult_t {
    pub(super) algo: cublasLtMatmulAlgo_t,
    pub(super) workspaceSize: usize,
    pub(super) state: Status,
    pub(super) wavesCount: f32,
    pub(super) reserved: [c_int; 4],
}

functions! {
    cublaslt -> Status;
    fn cublasLtCreate(handle: *mut cublasLtHandle_t);
    fn cublasLtDestroy(handle: cublasLtHandle_t);
    fn cublasLtMatrixLayoutCreate(
        layout: *mut cublasLtMatrixLayout_t, dtype: cudaDataType_t, rows: u64, columns: u64,
        leading: i64,
    );
    fn cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t);
    fn cublasLtMatrixLayoutSetAttribute(
        layout: cublasLtMatrixLayout_t, attribute: cublasLtMatrixLayoutAttribute_t,
        value: *const c_void, n_bytes: usize,
    );
    fn cublasLtMatmulDescCreate(
        descriptor: *mut cublasLtMatmulDesc_t, compute: cublasComputeType_t, scale: cudaDataType_t,
    );
    fn cublasLtMatmulDescDestroy(descriptor: cublasLtMatmulDesc_t);
    fn cublasLtMatmulDescSetAttribute(
        descriptor: cublasLtMatmulDesc_t, attribute: cublasLtMatmulDescAttributes_t,
        value: *const c_void, n_bytes: usize,
    );
    fn cublasLtMatmulPreferenceCreate(preference: *mut cublasLtMatmulPreference_t);
    fn cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t);
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: cublasLtMatmulPreference_t, attribute: cublasLtMatmulPreferenceAttributes_t,
        value: *const c_void, n_bytes: usize,
    );
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: cublasLtHandle_t, descriptor: cublasLtMatmulDesc_t,
        first: cublasLtMatrixLayout_t, second: cublasLtMatrixLayout_t,
        addend: cublasLtMatrixLayout_t, result: cublasLtMatrixLayout_t,
        preference: cublasLtMatmulPreference_t, capacity: c_int,
        algorithms: *mut cublasLtMatmulHeuristicResult_t, n_found: *mut c_int,
    );
    fn cublasLtMatmul(
        handle: cublasLtHandle_t, descriptor: cublasLtMatmulDesc_t, alpha: *const c_void,
        first: *const c_void, first_layout: cublasLtMatrixLayout_t,
        second: *const c_void, second_layout: cublasLtMatrixLayout_t, beta: *const c_void,
        addend: *const c_void, addend_layout: cublasLtMatrixLayout_t,
        result: *mut c_void, result_layout: cublasLtMatrixLayout_t,
        algorithm: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, workspace_bytes: usize,
        stream: cudaStream_t,
    );
    fn cublasLtMatrixTransformDescCreate(
        descriptor: *mut cublasLtMatrixTransformDesc_t, scale: cudaDataType_t,
    );
    fn cublasLtMatrixTransformDescDestroy(descriptor: cublasLtMatrixTransformDesc_t);
    fn cublasLtMatrixTransformDescSetAttribute(
        descriptor: cublasLtMatrixTransformDesc_t,
        attribute: cublasLtMatrixTransformDescAttributes_t, value: *const c_void, n_bytes: usize,
    );
    fn cublasLtMatrixTransform(
        handle: cublasLtHandle_t, descriptor: cublasLtMatrixTransformDesc_t, alpha: *const c_void,
        first: *const c_void, first_layout: cublasLtMatrixLayout_t, beta: *const c_void,
        second: *const c_void, second_layout: cublasLtMatrixLayout_t,
        result: *mut c_void, result_layout: cublasLtMatrixLayout_t, stream: cudaStream_t,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::headers::{Asserts, same_fields, same_numbers};

    #[test]
    fn numbers_are_those_of_its_header() {
        let mut asserts = Asserts::about("cublasLt.h");
        same_numbers! { asserts,
            cublasLtMatmulDescAttributes_t:
                CUBLASLT_MATMUL_DESC_TRANSA CUBLASLT_MATMUL_DESC_TRANSB CUBLASLT_MATMUL_DESC_EPILOGUE
                CUBLASLT_MATMUL_DESC_BIAS_POINTER CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
                CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE
                CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
            cublasLtMatmulPreferenceAttributes_t:
                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
                CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
            cublasLtMatrixLayoutAttribute_t:
                CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            cublasLtMatrixTransformDescAttributes_t: CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA;
            cublasLtEpilogue_t:
                CUBLASLT_EPILOGUE_DEFAULT CUBLASLT_EPILOGUE_BIAS CUBLASLT_EPILOGUE_RELU
                CUBLASLT_EPILOGUE_RELU_BIAS CUBLASLT_EPILOGUE_GELU
                CUBLASLT_EPILOGUE_GELU_BIAS CUBLASLT_EPILOGUE_GELU_AUX CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                CUBLASLT_EPILOGUE_DGELU CUBLASLT_EPILOGUE_DGELU_BGRAD CUBLASLT_EPILOGUE_BGRADA
                CUBLASLT_EPILOGUE_BGRADB;
            cublasComputeType_t: CUBLAS_COMPUTE_32F CUBLAS_COMPUTE_32F_FAST_TF32;
            cudaDataType_t: CUDA_R_32F CUDA_R_16BF;
        }
        let statuses = [
            ("CUBLAS_STATUS_SUCCESS", Status::CUBLAS_STATUS_SUCCESS),
            ("CUBLAS_STATUS_INVALID_VALUE", Status::CUBLAS_STATUS_INVALID_VALUE),
            ("CUBLAS_STATUS_NOT_SUPPORTED", Status::CUBLAS_STATUS_NOT_SUPPORTED),
        ];
        statuses.iter().for_each(|(name, status)| asserts.equal(name, status.0));
        same_fields! { asserts,
            cublasLtMatmulHeuristicResult_t, "cublasLtMatmulHeuristicResult_t":
                algo workspaceSize state wavesCount reserved
        }
        asserts.check("cublaslt");
    }
}
