//! Versions of libraries, which tell them in different ways.
#![expect(unsafe_code, reason = "functions of C libraries are called")]

use std::ffi::c_int;

use super::loaded::LoadedLibrary;

/// Calls `nvrtcVersion`, which writes a major and a minor version.
pub(super) fn nvrtc_version(library: &LoadedLibrary) -> Option<[usize; 3]> {
    type Function = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the type is that of NVRTC's header.
    let function = unsafe { library.function::<Function>("nvrtcVersion") }?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the results are local variables.
    let status = unsafe { function(&mut major, &mut minor) };
    (status == 0).then_some([major.try_into().ok()?, minor.try_into().ok()?, 0])
}

/// Calls `ncclGetVersion`, which writes a number.
pub(super) fn nccl_version(library: &LoadedLibrary) -> Option<[usize; 3]> {
    type Function = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: the type is that of NCCL's header.
    let function = unsafe { library.function::<Function>("ncclGetVersion") }?;
    let mut version = 0;
    // SAFETY: the result is a local variable.
    let status = unsafe { function(&mut version) };
    usize::try_from(version).ok().filter(|_| status == 0).map(version_parts)
}

/// Calls `cublasLtGetVersion`, which returns a number.
pub(super) fn cublaslt_version(library: &LoadedLibrary) -> Option<[usize; 3]> {
    returned_version(library, "cublasLtGetVersion")
}

/// Calls `cudnnGetVersion`, which returns a number.
pub(super) fn cudnn_version(library: &LoadedLibrary) -> Option<[usize; 3]> {
    returned_version(library, "cudnnGetVersion")
}

fn returned_version(library: &LoadedLibrary, name: &str) -> Option<[usize; 3]> {
    type Function = unsafe extern "C" fn() -> usize;
    // SAFETY: the type is that of the headers of cuBLASLt and cuDNN.
    let function = unsafe { library.function::<Function>(name) }?;
    // SAFETY: it has no conditions.
    Some(version_parts(unsafe { function() }))
}

/// Splits a version number of the libraries since 2023: 91900 is 9.19.0.
fn version_parts(version: usize) -> [usize; 3] {
    [version / 10_000, version / 100 % 100, version % 100]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_split() {
        assert_eq!(version_parts(91_900), [9, 19, 0]);
        assert_eq!(version_parts(130_103), [13, 1, 3]);
        assert_eq!(version_parts(22_809), [2, 28, 9]);
    }
}
