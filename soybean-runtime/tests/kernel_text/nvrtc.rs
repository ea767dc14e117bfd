//! NVIDIA's compiler, if its libraries are found. It needs no GPU.
#![expect(unsafe_code, reason = "functions of a C library")]

use std::{
    env,
    ffi::{CString, c_char, c_int, c_void},
    fs,
    path::PathBuf,
    ptr,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type LogSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Log = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type CubinSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Cubin = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The functions of the library.
pub(crate) struct Compiler {
    create: Create,
    compile: Compile,
    log_size: LogSize,
    log: Log,
    cubin_size: CubinSize,
    cubin: Cubin,
    destroy: Destroy,
    _libraries: [Library; 2],
}

impl Compiler {
    /// Returns the compiler in one of the folders that `SOYBEAN_CUDA_LIBS` or `NVRTC_LIB` lists.
    pub(crate) fn find() -> Option<Self> {
        let folders = ["SOYBEAN_CUDA_LIBS", "NVRTC_LIB"].into_iter().filter_map(env::var_os);
        let folders: Vec<PathBuf> =
            folders.flat_map(|it| env::split_paths(&it).collect::<Vec<_>>()).collect();
        let files = folders.iter().filter_map(|it| fs::read_dir(it).ok()).flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|it| it.path()).collect();
        files.sort();
        let named = |start: &str| {
            let is_named = |it: &&PathBuf| {
                it.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
            };
            files.iter().find(is_named)
        };
        let open = |path: &PathBuf| {
            // SAFETY: the library's constructors only set up its own state.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.ok()
        };
        // The second library finds the first by name only if it is already loaded.
        let builtins = open(named("libnvrtc-builtins.so")?)?;
        let nvrtc = open(named("libnvrtc.so")?)?;
        // SAFETY: the types are those of `nvrtc.h`.
        let create = *unsafe { nvrtc.get::<Create>(b"nvrtcCreateProgram") }.ok()?;
        // SAFETY: as above.
        let compile = *unsafe { nvrtc.get::<Compile>(b"nvrtcCompileProgram") }.ok()?;
        // SAFETY: as above.
        let log_size = *unsafe { nvrtc.get::<LogSize>(b"nvrtcGetProgramLogSize") }.ok()?;
        // SAFETY: as above.
        let log = *unsafe { nvrtc.get::<Log>(b"nvrtcGetProgramLog") }.ok()?;
        // SAFETY: as above.
        let cubin_size = *unsafe { nvrtc.get::<CubinSize>(b"nvrtcGetCUBINSize") }.ok()?;
        // SAFETY: as above.
        let cubin = *unsafe { nvrtc.get::<Cubin>(b"nvrtcGetCUBIN") }.ok()?;
        // SAFETY: as above.
        let destroy = *unsafe { nvrtc.get::<Destroy>(b"nvrtcDestroyProgram") }.ok()?;
        let _libraries = [nvrtc, builtins];
        Some(Self { create, compile, log_size, log, cubin_size, cubin, destroy, _libraries })
    }

    /// Compiles a text to machine code with these options beside that of the language, and returns
    /// the compiler's log and the machine code.
    pub(crate) fn compile(
        &self,
        text: &str,
        options: &[String],
    ) -> Result<(String, Vec<u8>), String> {
        let text = CString::new(text).unwrap();
        let options = ["--std=c++17"].into_iter().chain(options.iter().map(|it| &it[..]));
        let options: Vec<CString> = options.map(|it| CString::new(it).unwrap()).collect();
        let options: Vec<_> = options.iter().map(|it| it.as_ptr()).collect();
        let (mut program, name) = (ptr::null_mut(), c"model.cu".as_ptr());
        let (text, none) = (text.as_ptr(), ptr::null());
        // SAFETY: all texts end with 0 and outlive the call, and there are no headers.
        let created = unsafe { (self.create)(&raw mut program, text, name, 0, none, none) };
        assert_eq!(created, 0, "the program can be made");
        let n_options = options.len().try_into().unwrap();
        // SAFETY: the program was made, and there are this many options.
        let status = unsafe { (self.compile)(program, n_options, options.as_ptr()) };
        let mut size = 0;
        // SAFETY: the program was made.
        let sized = unsafe { (self.log_size)(program, &raw mut size) };
        let mut log = vec![0_u8; size];
        // SAFETY: the log has this size.
        let logged = unsafe { (self.log)(program, log.as_mut_ptr().cast()) };
        let mut n_bytes = 0;
        // SAFETY: the program was made.
        let has_cubin = unsafe { (self.cubin_size)(program, &raw mut n_bytes) } == 0;
        let mut cubin = vec![0_u8; if has_cubin { n_bytes } else { 0 }];
        if has_cubin {
            // SAFETY: the machine code has this size.
            let copied = unsafe { (self.cubin)(program, cubin.as_mut_ptr().cast()) };
            assert_eq!(copied, 0, "the machine code can be copied");
        }
        // SAFETY: the program was made, and is not used any more.
        let destroyed = unsafe { (self.destroy)(&raw mut program) };
        assert_eq!([sized, logged, destroyed], [0; 3], "the program can be asked and goes");
        let log = String::from_utf8_lossy(&log).into_owned();
        if status == 0 { Ok((log, cubin)) } else { Err(log) }
    }
}
