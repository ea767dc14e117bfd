//! Compilation of CUDA C++ by NVRTC, with a cache on disk.
//!
//! NVRTC takes seconds for a large model, so cubins are kept in a cache folder. The file name is a
//! hash of the source, the options and the version of NVRTC.
#![expect(unsafe_code, reason = "NVRTC is a C library")]

pub(super) mod binding;

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char},
    thread,
};

use cudarc::nvrtc::sys::nvrtcProgram;

use self::binding::{
    Status, nvrtcCompileProgram, nvrtcCreateProgram, nvrtcDestroyProgram, nvrtcGetCUBIN,
    nvrtcGetCUBINSize, nvrtcGetProgramLog, nvrtcGetProgramLogSize,
};
use super::{disk_cache, libraries::installation};
use crate::{Error, ErrorKind};

/// Compiler of kernels. It keeps the cubins, so that GPUs of one architecture share them even if no
/// cache folder can be used.
#[derive(Default)]
pub(crate) struct Compiler {
    cubins: BTreeMap<u128, Vec<u8>>,
}

impl Compiler {
    /// Compiles these CUDA C++ sources for an architecture such as `sm_90`, unless that has been
    /// done. Each has a thread.
    ///
    /// # Errors
    /// If NVRTC is missing or rejects a source.
    pub(crate) fn cubins(
        &mut self,
        texts: &[&str],
        architecture: &str,
    ) -> Result<Vec<&[u8]>, Error> {
        let key = |text: &str| disk_cache::fingerprint(&[text, architecture]);
        let new: Vec<&str> =
            texts.iter().copied().filter(|it| !self.cubins.contains_key(&key(it))).collect();
        let compiled: Vec<Result<Vec<u8>, Error>> = thread::scope(|scope| {
            let threads: Vec<_> =
                new.iter().map(|text| scope.spawn(|| cubin(text, architecture))).collect();
            threads.into_iter().map(|it| it.join().unwrap_or_else(|_| Err(panicked()))).collect()
        });
        for (text, code) in new.into_iter().zip(compiled) {
            self.cubins.insert(key(text), code?);
        }
        Ok(texts.iter().filter_map(|it| self.cubins.get(&key(it)).map(Vec::as_slice)).collect())
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Program, "compiling kernels: expected no panic")
}

/// Compiles CUDA C++ source for an architecture, or reads the cubin from the cache on disk.
///
/// # Errors
/// If NVRTC is missing or rejects the source.
pub(crate) fn cubin(text: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    let library = installation().nvrtc()?;
    let options = ["--std=c++17".to_owned(), format!("--gpu-architecture={architecture}")];
    let version = library.version.map(|it| it.to_string()).join(".");
    let key = disk_cache::fingerprint(&[text, &options.join(" "), &version]);
    let file = disk_cache::folder().map(|folder| folder.join(format!("{key:032x}.cubin")));
    if let Some(code) = file.as_deref().and_then(disk_cache::read) {
        return Ok(code);
    }
    let code = compile(text, &options)?;
    if let Some(file) = file {
        // A failed write only makes the next start slower.
        let _not_kept = disk_cache::write(&file, &code);
    }
    Ok(code)
}

/// Number of lines of the compiler log in an error message.
const LOG_LINES: usize = 12;

/// Runs NVRTC, which must be available.
fn compile(text: &str, options: &[String]) -> Result<Vec<u8>, Error> {
    let program = NvrtcProgram::new(text)?;
    let options: Vec<CString> = options.iter().map(|it| c_string(it)).collect::<Result<_, _>>()?;
    let pointers: Vec<*const c_char> = options.iter().map(|it| it.as_ptr()).collect();
    let count = i32::try_from(pointers.len()).expect("there are two options");
    // SAFETY: the program is alive, and the options are C strings that outlive the call.
    let compiled = unsafe { nvrtcCompileProgram(program.0, count, pointers.as_ptr()) };
    match compiled.result() {
        Ok(()) => program.code(),
        Err(error) => {
            let log = program.log();
            let lines: Vec<&str> = log.lines().take(LOG_LINES).collect();
            let error = Error::new(ErrorKind::Program, format!("compiling kernels: {error}"));
            Err(error.with_lines(&lines))
        }
    }
}

/// An NVRTC program.
struct NvrtcProgram(nvrtcProgram);

impl NvrtcProgram {
    fn new(text: &str) -> Result<Self, Error> {
        let text = c_string(text)?;
        let mut program = std::ptr::null_mut();
        let (name, none) = (c"soybean.cu", std::ptr::null());
        // SAFETY: the text and the name are C strings, which NVRTC copies; there are no headers.
        let made = unsafe {
            nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none)
        };
        check("reading kernels", made)?;
        Ok(Self(program))
    }

    fn code(&self) -> Result<Vec<u8>, Error> {
        let mut n_bytes = 0;
        // SAFETY: the program is alive, and the result is a place of this function.
        let asked = unsafe { nvrtcGetCUBINSize(self.0, &mut n_bytes) };
        check("the size of the machine code", asked)?;
        let mut code = vec![0_u8; n_bytes];
        // SAFETY: the program is alive, and the buffer has the size that NVRTC reported.
        let asked = unsafe { nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) };
        check("the machine code", asked)?;
        Ok(code)
    }

    /// Returns the compiler log, or an empty text.
    fn log(&self) -> String {
        let mut n_bytes = 0;
        // SAFETY: the program is alive, and the result is a place of this function.
        let asked = unsafe { nvrtcGetProgramLogSize(self.0, &mut n_bytes) };
        let mut log = vec![0_u8; n_bytes];
        if asked.result().is_err() || log.is_empty() {
            return String::new();
        }
        // SAFETY: the program is alive, and the buffer has the size that NVRTC reported.
        let asked = unsafe { nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) };
        let is_there = asked.result().is_ok();
        let text = CStr::from_bytes_until_nul(&log).ok().filter(|_| is_there);
        text.map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl Drop for NvrtcProgram {
    fn drop(&mut self) {
        // SAFETY: made in `new`; whatever NVRTC says of it, it is not used again.
        let _refused = unsafe { nvrtcDestroyProgram(&mut self.0) };
    }
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| {
        Error::new(
            ErrorKind::Program,
            "compiling kernels: expected source without null bytes, found one",
        )
    })
}

fn check(what: &str, status: Status) -> Result<(), Error> {
    status.result().map_err(|error| {
        Error::new(ErrorKind::Program, format!("compiling kernels: {what}: {error}"))
    })
}

#[cfg(test)]
mod tests;
