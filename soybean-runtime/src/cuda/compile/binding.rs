//! The functions of NVRTC in use, under the names of its header.
#![expect(unsafe_code, reason = "NVRTC is a C library")]
#![expect(non_snake_case, reason = "names of NVRTC's header")]

use std::ffi::{c_char, c_int};

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::cuda::libraries::{functions, statuses};

statuses!(nvrtc, "nvrtcGetErrorString", c_int, NvrtcError);

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
