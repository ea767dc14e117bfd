//! The functions of NVRTC in use, under the names of its header.
#![expect(unsafe_code, reason = "NVRTC is a C library")]
#![expect(non_snake_case, reason = "names of NVRTC's header")]

use std::{
    ffi::{c_char, c_int},
    fmt,
};

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::cuda::libraries::{functions, installation, status_text};

/// `nvrtcResult`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Status(c_int);

impl Status {
    /// Returns an error unless the call succeeded.
    pub(super) const fn result(self) -> Result<(), NvrtcError> {
        match self {
            Self(0) => Ok(()),
            failed => Err(NvrtcError(failed)),
        }
    }
}

/// The status of a call that failed.
#[derive(Clone, Copy)]
pub(super) struct NvrtcError(Status);

impl fmt::Display for NvrtcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status) = *self;
        // SAFETY: the type is that of NVRTC's header, and the texts are static.
        let text = unsafe { status_text(installation().nvrtc(), "nvrtcGetErrorString", status) };
        write!(f, "{text} ({})", status.0)
    }
}

functions! {
    nvrtc -> Status;
    fn nvrtcCreateProgram(
        program: *mut nvrtcProgram, text: *const c_char, name: *const c_char,
        n_headers: c_int, headers: *const *const c_char, header_names: *const *const c_char,
    );
    fn nvrtcDestroyProgram(program: *mut nvrtcProgram);
    fn nvrtcCompileProgram(program: nvrtcProgram, n_options: c_int, options: *const *const c_char);
    fn nvrtcGetCUBINSize(program: nvrtcProgram, n_bytes: *mut usize);
    fn nvrtcGetCUBIN(program: nvrtcProgram, code: *mut c_char);
    fn nvrtcGetProgramLogSize(program: nvrtcProgram, n_bytes: *mut usize);
    fn nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char);
}
