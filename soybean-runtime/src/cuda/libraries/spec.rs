//! The libraries that are spec, and where they come from.

/// A library by the names under which it is found.
pub(super) struct LibrarySpec {
    /// What it is called.
    pub(super) name: &'static str,
    /// The file's name up to the major version.
    pub(super) stem: &'static str,
    /// What brings it, as an alternative to Python's package.
    pub(super) product: &'static str,
    /// Python's package that brings it.
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
    /// What to say where no version is found.
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
