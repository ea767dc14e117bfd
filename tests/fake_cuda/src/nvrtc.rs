//! NVRTC by a C++ compiler. A CUBIN contains the path of a shared library.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use crate::compile::{Sanitize, compile};
use crate::ffi::{Address, Handle, In, Out, constant};
use crate::state::lock;

/// First bytes of an image that [`crate::state::State`] can load.
pub(crate) const CUBIN: &[u8] = b"SOYBEAN-FAKE-CUBIN\n";

/// Supported architectures, newest last.
const ARCHITECTURES: [c_int; 5] = [75, 80, 86, 90, 100];

struct Program {
    source: String,
    log: Vec<u8>,
    cubin: Option<Vec<u8>>,
}

static PROGRAMS: Mutex<BTreeMap<u64, Program>> = Mutex::new(BTreeMap::new());

/// `nvrtcResult`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Status(u32);

impl Status {
    const SUCCESS: Self = Self(0);
    const INVALID_INPUT: Self = Self(3);
    const INVALID_PROGRAM: Self = Self(4);
    const INVALID_OPTION: Self = Self(5);
    const COMPILATION: Self = Self(6);

    fn text(self) -> &'static CStr {
        match self {
            Self::SUCCESS => c"NVRTC_SUCCESS",
            Self::INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
            Self::INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
            Self::INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
            Self::COMPILATION => c"NVRTC_ERROR_COMPILATION",
            _ => c"NVRTC_ERROR unknown",
        }
    }
}

fn counted(name: &'static str, result: Result<(), Status>) -> Status {
    lock().count(name);
    result.err().unwrap_or(Status::SUCCESS)
}

/// Runs a function on a program. Fails if the handle is invalid.
fn with_program(
    program: Handle,
    body: impl FnOnce(&mut Program) -> Result<(), Status>,
) -> Result<(), Status> {
    body(
        PROGRAMS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(&program.0)
            .ok_or(Status::INVALID_PROGRAM)?,
    )
}

macro_rules! nvrtc {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> Status {
            let body = || -> Result<(), Status> { $body };
            counted(stringify!($name), body())
        }
    )*};
}

nvrtc! {
    fn nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) {
        major.put(13).and(minor.put(0)).ok_or(Status::INVALID_INPUT)
    }
    fn nvrtcGetNumSupportedArchs(count: Out<c_int>) {
        count.put(ARCHITECTURES.len().try_into().unwrap_or(0)).ok_or(Status::INVALID_INPUT)
    }
    fn nvrtcGetSupportedArchs(architectures: Out<c_int>) {
        architectures.put_list(&ARCHITECTURES).ok_or(Status::INVALID_INPUT)
    }
    fn nvrtcCreateProgram(
        program: Out<Handle>, text: In<c_char>, _name: In<c_char>, n_headers: c_int, _headers: Address, _names: Address,
    ) {
        let text = text.text().filter(|_| n_headers == 0).ok_or(Status::INVALID_INPUT)?;
        let number = lock().new_handle();
        PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Program { source: text, log: vec![0], cubin: None });
        program.put(Handle(number)).ok_or(Status::INVALID_INPUT)
    }
    fn nvrtcDestroyProgram(program: Out<Handle>) {
        // An in-out argument.
        let handle = program.get().ok_or(Status::INVALID_PROGRAM)?;
        PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0).ok_or(Status::INVALID_PROGRAM)?;
        program.put(Handle(0)).ok_or(Status::INVALID_PROGRAM)
    }
    fn nvrtcCompileProgram(program: Handle, count: c_int, options: In<In<c_char>>) {
        let count = usize::try_from(count).map_err(|_| Status::INVALID_INPUT)?;
        let options: Option<Vec<String>> = options.list(count).ok_or(Status::INVALID_INPUT)?.into_iter().map(In::text).collect();
        let options = options.ok_or(Status::INVALID_OPTION)?;
        with_program(program, |program| program.compile(&options))
    }
    fn nvrtcGetCUBINSize(program: Handle, n_bytes: Out<usize>) {
        with_program(program, |program| n_bytes.put(program.cubin.as_ref().ok_or(Status::INVALID_PROGRAM)?.len()).ok_or(Status::INVALID_INPUT))
    }
    fn nvrtcGetCUBIN(program: Handle, bytes: Out<u8>) {
        with_program(program, |program| bytes.put_list(program.cubin.as_ref().ok_or(Status::INVALID_PROGRAM)?).ok_or(Status::INVALID_INPUT))
    }
    fn nvrtcGetPTXSize(_program: Handle, _n_bytes: Out<usize>) { Err(Status::INVALID_PROGRAM) }
    fn nvrtcGetPTX(_program: Handle, _text: Out<u8>) { Err(Status::INVALID_PROGRAM) }
    fn nvrtcGetProgramLogSize(program: Handle, n_bytes: Out<usize>) {
        with_program(program, |program| n_bytes.put(program.log.len()).ok_or(Status::INVALID_INPUT))
    }
    fn nvrtcGetProgramLog(program: Handle, log: Out<u8>) {
        with_program(program, |program| log.put_list(&program.log).ok_or(Status::INVALID_INPUT))
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(status: Status) -> Address {
    constant(status.text())
}

impl Program {
    fn compile(&mut self, options: &[String]) -> Result<(), Status> {
        // A CUBIN requires a real architecture.
        let is_known = |option: &str| {
            ARCHITECTURES
                .iter()
                .any(|number| option == format!("sm_{number}") || option == format!("sm_{number}a"))
        };
        let architecture = options.iter().find_map(|option| {
            option.strip_prefix("--gpu-architecture=").or(option.strip_prefix("-arch="))
        });
        if !architecture.is_some_and(is_known) {
            self.log = b"nvrtc: error: invalid value for --gpu-architecture (-arch)\0".to_vec();
            return Err(Status::INVALID_OPTION);
        }
        match compile(&self.source, Sanitize::Nothing) {
            Ok(path) => {
                self.cubin = Some([CUBIN, path.as_os_str().as_encoded_bytes(), b"\n\0"].concat());
                self.log = vec![0];
                Ok(())
            }
            Err(message) => {
                self.log = [message.as_bytes(), b"\0"].concat();
                Err(Status::COMPILATION)
            }
        }
    }
}
