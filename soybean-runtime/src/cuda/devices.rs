//! Summary of the CUDA driver, libraries and GPUs of this machine.

use soybean_plan::readable_bytes;

#[cfg(feature = "mpi")]
use super::gpu::uuid;
use super::{
    gpu::{DeviceProperties, Version},
    libraries::{LoadedLibrary, installation},
};
use crate::Error;

/// Returns the number of usable GPUs.
///
/// # Errors
/// Says why there is none.
pub(crate) fn usable() -> Result<usize, Error> {
    installation().n_usable()
}

/// Returns the UUIDs of the GPUs that can communicate with other processes.
///
/// # Errors
/// Says why there is none.
#[cfg(feature = "mpi")]
pub(crate) fn uuids() -> Result<Vec<[u8; 16]>, Error> {
    let n_usable = usable()?;
    installation().nccl()?;
    (0..n_usable).map(uuid).collect()
}

/// Returns the name and a description of the driver, of each library and of each GPU.
pub(crate) fn lines() -> Vec<(String, String)> {
    let found = installation();
    let driver = found.driver().map(|it| format!("for CUDA {}", Version(it)));
    let driver = driver.unwrap_or_else(ToOwned::to_owned);
    let library = |name: &str, loaded: Result<&LoadedLibrary, Error>| {
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
    let DeviceProperties { name, capability: (major, minor), memory_bytes, .. } =
        DeviceProperties::of(ordinal)?;
    Ok(format!("{name}, capability {major}.{minor}, {}", readable_bytes(memory_bytes as u64)))
}
