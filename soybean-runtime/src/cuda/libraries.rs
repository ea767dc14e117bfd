//! Which of CUDA's libraries this machine has.
//!
//! A call of a library that is missing would end the process inside cudarc, so whoever needs one asks here first. Libraries outside the loader's folders are
//! opened by their whole paths; the loader then answers cudarc's question for their names with what is open already.
#![expect(unsafe_code, reason = "libraries are opened and asked for their versions")]

mod search;
mod wanted;

use std::{
    ffi::c_int,
    fmt, fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use cudarc::{
    cublaslt, cudnn,
    driver::{self, DriverError, sys::CUresult},
    nvrtc,
};
use libloading::Library;

use self::{
    search::{Folders, Surroundings},
    wanted::{CUBLASLT, CUDNN, NCCL, NVRTC, Wanted},
};
use super::{
    gpu::{self, Gpu, Version},
    nccl::Binding,
};
use crate::{Error, ErrorKind};

/// The first driver whose calls are all that the runtime makes.
const OLDEST_DRIVER: i32 = 12_000;

/// What this machine has. Libraries are opened when they are first asked for, since that takes tenths of seconds.
pub(crate) struct Found {
    /// The version of the driver, or why it cannot be used.
    driver: Result<i32, String>,
    /// The number of GPUs that the driver gives.
    n_devices: usize,
    folders: Folders,
    nvrtc: OnceLock<Result<Loaded, String>>,
    cublaslt: OnceLock<Result<Loaded, String>>,
    cudnn: OnceLock<Result<Loaded, String>>,
    nccl: OnceLock<Result<(Loaded, Binding), String>>,
}

/// A library that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Major, minor and patch version; NVRTC has no patch version.
    pub(crate) version: [usize; 3],
    /// The file, where the system tells.
    path: Option<PathBuf>,
}

/// What NVRTC opens itself, but only from the loader's folders.
const NVRTC_BUILTINS: &str = "libnvrtc-builtins.so.";

/// What this machine has; looked up once.
pub(crate) fn find() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(Found::look)
}

impl Found {
    fn look() -> Self {
        let driver = find_driver();
        let n_devices = if driver.is_ok() { count_devices() } else { Ok(0) };
        let (driver, n_devices) = match n_devices {
            Ok(n_devices) => (driver, n_devices),
            Err(why) => (Err(why), 0),
        };
        Self::with(driver, n_devices, Surroundings::of_process().folders())
    }

    fn with(driver: Result<i32, String>, n_devices: usize, folders: Folders) -> Self {
        let (nvrtc, cublaslt, cudnn) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { driver, n_devices, folders, nvrtc, cublaslt, cudnn, nccl: OnceLock::new() }
    }

    /// The GPUs with these numbers, or as many of them as there are.
    ///
    /// # Errors
    /// As for [`Self::n_usable`], or if a GPU refuses.
    pub(crate) fn gpus(&self, numbers: Range<usize>) -> Result<Vec<Arc<Gpu>>, Error> {
        let n_usable = self.n_usable()?;
        numbers.filter(|it| *it < n_usable).map(Gpu::new).collect()
    }

    /// The number of GPUs that can run programs; at least one.
    ///
    /// # Errors
    /// If there is none, or something without which none can run them is missing or too old.
    pub(crate) fn n_usable(&self) -> Result<usize, Error> {
        let driver = self.driver().map_err(device_error)?;
        if self.n_devices == 0 {
            return Err(device_error("expected a GPU, found none that the driver knows"));
        }
        for (wanted, library) in [(&NVRTC, self.nvrtc()?), (&CUBLASLT, self.cublaslt()?)] {
            check_major(wanted, library, driver)?;
        }
        Ok(self.n_devices)
    }

    /// The version of CUDA that the driver is made for.
    ///
    /// # Errors
    /// Says why there is no usable driver.
    pub(crate) fn driver(&self) -> Result<i32, &str> {
        self.driver.as_ref().map_or_else(|why| Err(why.as_str()), |it| Ok(*it))
    }

    /// The number of GPUs that the driver gives, whether or not they can be used.
    pub(crate) fn n_devices(&self) -> usize {
        self.n_devices
    }

    /// The compiler of kernels.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn nvrtc(&self) -> Result<&Loaded, Error> {
        let load = || self.load(&NVRTC, &self.cuda_majors(), nvrtc_version);
        answer(self.nvrtc.get_or_init(load))
    }

    /// The library of matrix products.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn cublaslt(&self) -> Result<&Loaded, Error> {
        let load = || self.load(&CUBLASLT, &self.cuda_majors(), cublaslt_version);
        answer(self.cublaslt.get_or_init(load))
    }

    /// The library of convolutions.
    ///
    /// # Errors
    /// If it is missing; other kernels can do its work.
    pub(crate) fn cudnn(&self) -> Result<&Loaded, Error> {
        // It uses these two libraries itself, and asks for them by names that the loader may not know.
        let _others_first = (self.nvrtc(), self.cublaslt());
        let load = || self.load(&CUDNN, &[9], cudnn_version);
        answer(self.cudnn.get_or_init(load))
    }

    /// The library of collectives.
    ///
    /// # Errors
    /// If it is missing; copies between GPUs can do its work.
    pub(crate) fn nccl(&self) -> Result<&Binding, Error> {
        self.nccl_loaded().map(|(_, binding)| binding)
    }

    /// The library of collectives, with its version.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn nccl_loaded(&self) -> Result<&(Loaded, Binding), Error> {
        answer(self.nccl.get_or_init(|| {
            let binding = Binding::new(self.open(&NCCL, &[2])?)?;
            let version = parts(binding.version_number().unwrap_or(0));
            Ok((Loaded { version, path: loaded_from(NCCL.stem) }, binding))
        }))
    }

    /// Opens a library, lets cudarc find it, and asks for its version.
    fn load(
        &self,
        wanted: &Wanted,
        majors: &[usize],
        version: fn() -> Option<[usize; 3]>,
    ) -> Result<Loaded, String> {
        let opened = self.open(wanted, majors);
        let version = match version() {
            Some(version) => version,
            None => return Err(opened.err().unwrap_or_else(|| wanted.missing(majors))),
        };
        // It stays open until the process ends, as everything that cudarc opens.
        opened.into_iter().for_each(std::mem::forget);
        Ok(Loaded { version, path: loaded_from(wanted.stem) })
    }

    /// Opens a library from the first place that has it: the user's folders, the loader's, then all others.
    fn open(&self, wanted: &Wanted, majors: &[usize]) -> Result<Library, String> {
        let names: Vec<String> = majors.iter().map(|it| format!("{}{it}", wanted.stem)).collect();
        let within = |folders: &[PathBuf]| -> Vec<PathBuf> {
            let all = folders.iter().flat_map(|folder| names.iter().map(|it| folder.join(it)));
            all.filter(|it| it.exists()).collect()
        };
        let by_loader: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let (chosen, usual) = (within(&self.folders.chosen), within(&self.folders.usual));
        let n_known = by_loader.len();
        let mut refusal = None;
        for (place, path) in chosen.iter().chain(&by_loader).chain(&usual).enumerate() {
            open_builtins_beside(path);
            match open(path) {
                Ok(library) => return Ok(library),
                // That the loader does not know a name is no news; that a file is there and cannot be opened is.
                Err(why) if !(chosen.len()..chosen.len() + n_known).contains(&place) => {
                    refusal.get_or_insert(why);
                }
                Err(_) => {}
            }
        }
        Err(refusal.map_or_else(|| wanted.missing(majors), |why| format!("{}: {why}", wanted.name)))
    }

    /// The major versions of CUDA whose libraries suit the driver, the best first.
    fn cuda_majors(&self) -> Vec<usize> {
        match self.driver {
            Ok(version) if version < 13_000 => vec![12, 13],
            Ok(_) | Err(_) => vec![13, 12],
        }
    }
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{major}.{minor}")?;
        if patch != 0 {
            write!(f, ".{patch}")?;
        }
        self.path.as_ref().map_or(Ok(()), |it| write!(f, " ({})", it.display()))
    }
}

fn device_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device, message)
}

fn answer<T>(library: &Result<T, String>) -> Result<&T, Error> {
    library.as_ref().map_err(device_error)
}

/// What a library of a later CUDA than the driver's makes, the driver does not take.
fn check_major(wanted: &Wanted, library: &Loaded, driver: i32) -> Result<(), Error> {
    let [major, minor, _] = library.version;
    if usize::try_from(driver / 1000).is_ok_and(|it| major <= it) {
        return Ok(());
    }
    let (name, found) = (wanted.name, Version(driver));
    Err(device_error(format!(
        "expected a driver for CUDA {major}.0 or later, as {name} {major}.{minor} needs, found one for {found}: update the driver, or install \
         the libraries of its own version of CUDA"
    )))
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: these are NVIDIA's libraries; opening them runs only their own start.
    unsafe { Library::new(path) }.map_err(|error| error.to_string())
}

fn open_builtins_beside(path: &Path) {
    let name = path.file_name().map(|it| it.to_string_lossy()).unwrap_or_default();
    let Some(major) = name.strip_prefix(NVRTC.stem) else { return };
    let start = format!("{NVRTC_BUILTINS}{major}.");
    let beside = path.parent().and_then(|folder| search::file_beginning_with(folder, &start));
    if let Some(library) = beside.and_then(|it| open(&it).ok()) {
        // NVRTC finds it because it is open, so it stays open.
        std::mem::forget(library);
    }
}

/// The version of the driver, initialised.
fn find_driver() -> Result<i32, String> {
    // SAFETY: opens the library, no more.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err("expected NVIDIA's driver (libcuda.so.1), found none".to_owned());
    }
    let version = gpu::driver_version().map_err(|error| error.to_string())?;
    if version < OLDEST_DRIVER {
        let (oldest, found) = (Version(OLDEST_DRIVER), Version(version));
        return Err(format!("expected a driver for CUDA {oldest} or later, found one for {found}"));
    }
    Ok(version)
}

fn count_devices() -> Result<usize, String> {
    match driver::result::init().and_then(|()| driver::result::device::get_count()) {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        Err(error) => Err(gpu::fault("starting the driver", error).to_string()),
    }
}

fn nvrtc_version() -> Option<[usize; 3]> {
    // SAFETY: opens the library, no more.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return None;
    }
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: the library is there, and the results are places of this function.
    let asked = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    asked.result().ok()?;
    Some([major.try_into().ok()?, minor.try_into().ok()?, 0])
}

fn cublaslt_version() -> Option<[usize; 3]> {
    // SAFETY: opens the library, no more.
    if !unsafe { cublaslt::sys::is_culib_present() } {
        return None;
    }
    // SAFETY: the library is there.
    Some(parts(unsafe { cublaslt::sys::cublasLtGetVersion() }))
}

fn cudnn_version() -> Option<[usize; 3]> {
    // SAFETY: opens the library, no more.
    if !unsafe { cudnn::sys::is_culib_present() } {
        return None;
    }
    // SAFETY: the library is there.
    Some(parts(unsafe { cudnn::sys::cudnnGetVersion() }))
}

/// The parts of a version as libraries count them since 2023: 91900 is 9.19.0.
fn parts(version: usize) -> [usize; 3] {
    [version / 10_000, version / 100 % 100, version % 100]
}

/// The file of an open library, as Linux lists it.
fn loaded_from(stem: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let start = format!("/{}", stem.trim_end_matches('.'));
    maps.lines()
        .find(|it| it.contains(&start))
        .and_then(|it| it.find('/').map(|at| it[at..].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(version: [usize; 3]) -> Loaded {
        Loaded { version, path: None }
    }

    #[test]
    fn versions_are_read_as_libraries_count_them() {
        assert_eq!(parts(91_900), [9, 19, 0]);
        assert_eq!(parts(130_103), [13, 1, 3]);
        assert_eq!(loaded(parts(22_809)).to_string(), "2.28.9");
    }

    #[test]
    fn libraries_may_not_be_newer_than_the_driver() {
        assert_eq!(check_major(&NVRTC, &loaded([12, 9, 0]), 12_040), Ok(()));
        assert_eq!(check_major(&NVRTC, &loaded([12, 9, 0]), 13_000), Ok(()));
        let error = check_major(&CUBLASLT, &loaded([13, 1, 0]), 12_080).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected a driver for CUDA 13.0 or later, as cuBLASLt 13.1 needs, found one for 12.8: update the driver, or install \
             the libraries of its own version of CUDA"
        );
    }

    #[test]
    fn missing_libraries_are_named_with_where_to_get_them() {
        let folders = Folders { chosen: Vec::new(), usual: Vec::new() };
        let found = Found::with(Err(String::new()), 0, folders);
        let (name, stem) = ("X", "libsoybean-none.so.");
        let wanted = Wanted { name, stem, product: "X", package: "none" };
        let message = found.open(&wanted, &[2, 1]).unwrap_err();
        assert_eq!(
            message,
            "X: expected libsoybean-none.so.2 or libsoybean-none.so.1, found none: install X or Python's package none, or set \
             SOYBEAN_CUDA_LIBS to its folder"
        );
    }
}
