//! Names, sources and functions of the required libraries.

use super::{
    loaded::LoadedLibrary,
    version::{cublaslt_version, cudnn_version, nccl_version, nvrtc_version},
};
use crate::cuda::{compile, cudnn, matmul, nccl};

/// Names of a library.
pub(super) struct LibrarySpec {
    /// Display name.
    pub(super) name: &'static str,
    /// File name up to the major version.
    pub(super) stem: &'static str,
    /// Product that contains the library, as an alternative to the Python package.
    pub(super) product: &'static str,
    /// Python package that contains the library.
    pub(super) package: &'static str,
    /// Functions that the library must have.
    pub(super) functions: &'static [&'static str],
    /// Returns the version.
    pub(super) version: fn(&LoadedLibrary) -> Option<[usize; 3]>,
}

pub(super) const NVRTC: LibrarySpec = LibrarySpec {
    name: "NVRTC",
    stem: "libnvrtc.so.",
    product: "CUDA's toolkit",
    package: "nvidia-cuda-nvrtc",
    functions: compile::binding::FUNCTIONS,
    version: nvrtc_version,
};
pub(super) const CUBLASLT: LibrarySpec = LibrarySpec {
    name: "cuBLASLt",
    stem: "libcublasLt.so.",
    product: "CUDA's toolkit",
    package: "nvidia-cublas",
    functions: matmul::binding::FUNCTIONS,
    version: cublaslt_version,
};
pub(super) const CUDNN: LibrarySpec = LibrarySpec {
    name: "cuDNN",
    stem: "libcudnn.so.",
    product: "cuDNN",
    package: "nvidia-cudnn-cu13",
    functions: cudnn::FUNCTIONS,
    version: cudnn_version,
};
pub(super) const NCCL: LibrarySpec = LibrarySpec {
    name: "NCCL",
    stem: "libnccl.so.",
    product: "NCCL",
    package: "nvidia-nccl-cu13",
    functions: nccl::Binding::FUNCTIONS,
    version: nccl_version,
};

impl LibrarySpec {
    /// Returns the error message for a missing library.
    pub(super) fn missing(&self, majors: &[usize]) -> String {
        let names: Vec<String> = majors.iter().map(|it| format!("{}{it}", self.stem)).collect();
        format!(
            "{}: expected {}, found none: install {} or Python's package {}, or set SOYBEAN_CUDA_LIBS to its folder",
            self.name,
            names.join(" or "),
            self.product,
            self.package
        )
    }
}
