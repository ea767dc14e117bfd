//! Checks of the numbers and types of our bindings against NVIDIA's headers.
//!
//! A C++ compiler checks static asserts, whose values this program prints. The headers are those of
//! `scripts/cuda-headers.sh`, in the folder that `SOYBEAN_CUDA_HEADERS` names.

use std::{env, fmt, fs, path::PathBuf, process::Command};

use cudarc::cublaslt::sys;

/// Static asserts about a header.
pub(super) struct Asserts(String);

impl Asserts {
    /// Starts the asserts about a header.
    pub(super) fn about(header: &str) -> Self {
        Self(format!("#include <cstddef>\n#include <{header}>\n"))
    }

    /// Asserts that an expression of C++ has this value.
    pub(super) fn equal(&mut self, expression: &str, value: impl fmt::Display) {
        let assert = format!("static_assert((long long)({expression}) == {value});\n");
        self.0.push_str(&assert);
    }

    /// Checks the asserts, if there are headers.
    #[expect(clippy::print_stderr, reason = "a skipped test should be visible in the output")]
    pub(super) fn check(self, name: &str) {
        let Some(folder) = env::var_os("SOYBEAN_CUDA_HEADERS").map(PathBuf::from) else {
            return eprintln!("skipped: SOYBEAN_CUDA_HEADERS names no folder with headers");
        };
        let file = env::temp_dir().join(format!("soybean-{name}-{}.cpp", std::process::id()));
        fs::write(&file, self.0).unwrap();
        let mut compiler = Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()));
        compiler.args(["-std=c++17", "-fsyntax-only"]).arg(&file);
        for package in ["cu13/include", "cu13/include/cccl", "nccl/include", "cudnn/include"] {
            compiler.arg("-isystem").arg(folder.join("nvidia").join(package));
        }
        let output = compiler.output().unwrap();
        fs::remove_file(&file).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Asserts that variants of enums have the numbers of the header, which has the same names.
macro_rules! same_numbers {
    ($asserts:expr, $($path:path: $($name:ident)*;)*) => {
        $({
            use $path as Number;
            $($asserts.equal(stringify!($name), Number::$name as u32);)*
        })*
    };
}
pub(super) use same_numbers;

/// Asserts that a struct has the size and the fields of the header's, which have the same names.
macro_rules! same_fields {
    ($asserts:expr, $type:ty, $name:literal: $($field:ident)*) => {
        $asserts.equal(concat!("sizeof(", $name, ")"), size_of::<$type>());
        $(
            let offset = concat!("offsetof(", $name, ", ", stringify!($field), ")");
            $asserts.equal(offset, std::mem::offset_of!($type, $field));
        )*
    };
}

#[test]
fn numbers_of_cublaslt_are_those_of_its_header() {
    let mut asserts = Asserts::about("cublasLt.h");
    same_numbers! { asserts,
        sys::cublasLtMatmulDescAttributes_t:
            CUBLASLT_MATMUL_DESC_TRANSA CUBLASLT_MATMUL_DESC_TRANSB CUBLASLT_MATMUL_DESC_EPILOGUE
            CUBLASLT_MATMUL_DESC_BIAS_POINTER CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
            CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE
            CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
        sys::cublasLtMatmulPreferenceAttributes_t:
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
        sys::cublasLtMatrixLayoutAttribute_t:
            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
        sys::cublasLtEpilogue_t:
            CUBLASLT_EPILOGUE_DEFAULT CUBLASLT_EPILOGUE_BIAS CUBLASLT_EPILOGUE_RELU
            CUBLASLT_EPILOGUE_RELU_BIAS CUBLASLT_EPILOGUE_RELU_AUX CUBLASLT_EPILOGUE_RELU_AUX_BIAS
            CUBLASLT_EPILOGUE_DRELU CUBLASLT_EPILOGUE_DRELU_BGRAD CUBLASLT_EPILOGUE_GELU
            CUBLASLT_EPILOGUE_GELU_BIAS CUBLASLT_EPILOGUE_GELU_AUX CUBLASLT_EPILOGUE_GELU_AUX_BIAS
            CUBLASLT_EPILOGUE_DGELU CUBLASLT_EPILOGUE_DGELU_BGRAD CUBLASLT_EPILOGUE_BGRADA
            CUBLASLT_EPILOGUE_BGRADB;
        sys::cublasComputeType_t: CUBLAS_COMPUTE_32F CUBLAS_COMPUTE_32F_FAST_TF32;
        sys::cudaDataType_t: CUDA_R_32F CUDA_R_16BF;
    }
    same_fields! { asserts,
        sys::cublasLtMatmulHeuristicResult_t, "cublasLtMatmulHeuristicResult_t":
            algo workspaceSize state wavesCount reserved
    }
    asserts.check("cublaslt");
}
