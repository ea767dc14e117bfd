//! What there is of CUDA on this machine, in words.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ffi::c_int;

use cudarc::driver::{
    DriverError, result,
    sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    },
};

use super::{
    gpu::{Version, fault},
    libraries::{Loaded, find},
};
use crate::Error;

/// The number of GPUs that can be used, or why there is none.
pub(crate) fn usable() -> Result<usize, Error> {
    find().n_usable()
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
        let known = description(ordinal);
        let known = known.unwrap_or_else(|error| fault("asking for the device", error).to_string());
        lines.push((format!("GPU {ordinal}"), known));
    }
    lines
}

/// What is known of a GPU without taking any of its memory, as a context would.
fn description(ordinal: usize) -> Result<String, DriverError> {
    let device = result::device::get(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
    let name = result::device::get_name(device)?;
    // SAFETY: the driver gave the handle.
    let memory = unsafe { result::device::total_mem(device) }?;
    // SAFETY: as above.
    let major = unsafe { result::device::get_attribute(device, MAJOR) }?;
    // SAFETY: as above.
    let minor = unsafe { result::device::get_attribute(device, MINOR) }?;
    let gibibytes = memory as f64 / (1_u64 << 30) as f64;
    Ok(format!("{name}, capability {major}.{minor}, {gibibytes:.1} GiB"))
}
