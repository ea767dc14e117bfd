//! Names and sources of the required libraries.

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
}

pub(super) const NVRTC: LibrarySpec = LibrarySpec {
    name: "NVRTC",
    stem: "libnvrtc.so.",
    product: "CUDA's toolkit",
    package: "nvidia-cuda-nvrtc",
};
pub(super) const CUBLASLT: LibrarySpec = LibrarySpec {
    name: "cuBLASLt",
    stem: "libcublasLt.so.",
    product: "CUDA's toolkit",
    package: "nvidia-cublas",
};
pub(super) const CUDNN: LibrarySpec = LibrarySpec {
    name: "cuDNN",
    stem: "libcudnn.so.",
    product: "cuDNN",
    package: "nvidia-cudnn-cu13",
};
pub(super) const NCCL: LibrarySpec =
    LibrarySpec { name: "NCCL", stem: "libnccl.so.", product: "NCCL", package: "nvidia-nccl-cu13" };
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
