//! What there is of CUDA on this machine, in words.

use soybean_plan::readable_memory;

#[cfg(feature = "mpi")]
use super::gpu::identity;
use super::{
    gpu::{Description, Version},
    libraries::{Loaded, find},
};
use crate::Error;

/// The number of GPUs that can be used, or why there is none.
pub(crate) fn usable() -> Result<usize, Error> {
    find().n_usable()
}

/// What all GPUs are known by that can be used together with those of other processes, or why there is none.
#[cfg(feature = "mpi")]
pub(crate) fn joinable() -> Result<Vec<[u8; 16]>, Error> {
    let n_usable = usable()?;
    find().nccl()?;
    (0..n_usable).map(identity).collect()
}

/// The driver, the libraries and the GPUs: the name of each, and what is known of it.
pub(crate) fn lines() -> Vec<(String, String)> {
    let found = find();
    let driver = found.driver().map(|it| format!("for CUDA {}", Version(it)));
    let driver = driver.unwrap_or_else(ToOwned::to_owned);
    let library = |name: &str, loaded: Result<&Loaded, Error>| {
        let known = loaded.map_or_else(|error| error.to_string(), ToString::to_string);
        let start = format!("{name}: ");
        (name.to_owned(), known.strip_prefix(&start).unwrap_or(&known).to_owned())
    };
    let mut lines = vec![
        ("driver".to_owned(), driver),
        library("NVRTC", found.nvrtc()),
        library("cuBLASLt", found.cublaslt()),
        library("cuDNN", found.cudnn()),
        library("NCCL", found.nccl_loaded().map(|(loaded, _)| loaded)),
    ];
    for ordinal in 0..found.n_devices() {
        let known = description(ordinal).unwrap_or_else(|error| error.to_string());
        lines.push((format!("GPU {ordinal}"), known));
    }
    lines
}

fn description(ordinal: usize) -> Result<String, Error> {
    let Description { name, capability: (major, minor), memory_bytes, .. } =
        Description::of(ordinal)?;
    Ok(format!("{name}, capability {major}.{minor}, {}", readable_memory(memory_bytes as u64)))
}
