//! Discovery of the CUDA libraries on this machine.
//!
//! A call into a missing library panics, so callers ask here first. cudarc opens the driver, and
//! nothing else: it would look for the other libraries by names under which the system may have
//! other versions.
#![expect(unsafe_code, reason = "libraries are opened")]

mod functions;
mod loaded;
mod search;
mod spec;
mod version;

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use cudarc::driver::{self, DriverError, sys::CUresult};
use libloading::Library;

pub(crate) use self::loaded::LoadedLibrary;
pub(super) use self::{
    functions::{functions, statuses},
    loaded::status_text,
};
use self::{
    search::{SearchEnvironment, SearchFolders},
    spec::{CUBLASLT, CUDNN, LibrarySpec, NCCL, NVRTC},
};
use super::{
    gpu::{self, Gpu, Version},
    nccl::Binding,
};
use crate::{Error, ErrorKind};

/// Oldest driver that has all functions that the runtime calls.
const OLDEST_DRIVER: i32 = 12_000;

/// The CUDA installation. Libraries are opened on first use, since that takes tenths of a second.
pub(crate) struct Installation {
    /// Version of the driver, or the reason why it cannot be used.
    driver: Result<i32, String>,
    /// Number of GPUs that the driver reports.
    n_devices: usize,
    folders: SearchFolders,
    nvrtc: OnceLock<Result<LoadedLibrary, String>>,
    cublaslt: OnceLock<Result<LoadedLibrary, String>>,
    cudnn: OnceLock<Result<LoadedLibrary, String>>,
    nccl: OnceLock<Result<(LoadedLibrary, Binding), String>>,
}

/// Library that NVRTC opens itself, from the loader's folders only.
const NVRTC_BUILTINS: &str = "libnvrtc-builtins.so.";

/// Returns the CUDA installation, which is detected once.
pub(crate) fn installation() -> &'static Installation {
    static FOUND: OnceLock<Installation> = OnceLock::new();
    FOUND.get_or_init(Installation::detect)
}

impl Installation {
    fn detect() -> Self {
        let driver = load_driver();
        let n_devices = if driver.is_ok() { count_devices() } else { Ok(0) };
        let (driver, n_devices) = match n_devices {
            Ok(n_devices) => (driver, n_devices),
            Err(why) => (Err(why), 0),
        };
        Self::with(driver, n_devices, SearchEnvironment::from_process().folders())
    }

    fn with(driver: Result<i32, String>, n_devices: usize, folders: SearchFolders) -> Self {
        let (nvrtc, cublaslt, cudnn) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { driver, n_devices, folders, nvrtc, cublaslt, cudnn, nccl: OnceLock::new() }
    }

    /// Opens the GPUs with these ordinals, as far as they exist.
    ///
    /// # Errors
    /// As [`Self::n_usable`], or if the driver fails.
    pub(crate) fn gpus(&self, numbers: Range<usize>) -> Result<Vec<Arc<Gpu>>, Error> {
        let n_usable = self.n_usable()?;
        numbers.filter(|it| *it < n_usable).map(Gpu::new).collect()
    }

    /// Returns the number of usable GPUs, at least one.
    ///
    /// # Errors
    /// If there is none, or a required library is missing or too old.
    pub(crate) fn n_usable(&self) -> Result<usize, Error> {
        let driver = self.driver().map_err(device_error)?;
        if self.n_devices == 0 {
            return Err(device_error("expected a GPU, found none that the driver knows"));
        }
        for (spec, library) in [(&NVRTC, self.nvrtc()?), (&CUBLASLT, self.cublaslt()?)] {
            check_major(spec, library.version, driver)?;
        }
        Ok(self.n_devices)
    }

    /// Returns the CUDA version of the driver.
    ///
    /// # Errors
    /// Says why there is no usable driver.
    pub(crate) fn driver(&self) -> Result<i32, &str> {
        self.driver.as_ref().map_or_else(|why| Err(why.as_str()), |it| Ok(*it))
    }

    /// Returns the number of GPUs that the driver reports, usable or not.
    pub(crate) fn n_devices(&self) -> usize {
        self.n_devices
    }

    /// Returns NVRTC.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn nvrtc(&self) -> Result<&LoadedLibrary, Error> {
        let load = || self.load(&NVRTC, &self.cuda_majors());
        as_device_error(self.nvrtc.get_or_init(load))
    }

    /// Returns cuBLASLt.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn cublaslt(&self) -> Result<&LoadedLibrary, Error> {
        let load = || self.load(&CUBLASLT, &self.cuda_majors());
        as_device_error(self.cublaslt.get_or_init(load))
    }

    /// Returns cuDNN.
    ///
    /// # Errors
    /// If it is missing. Generated kernels can replace it.
    pub(crate) fn cudnn(&self) -> Result<&LoadedLibrary, Error> {
        // cuDNN opens these two libraries by names that the loader may not know.
        let _others_first = (self.nvrtc(), self.cublaslt());
        let load = || self.load(&CUDNN, &[9]);
        as_device_error(self.cudnn.get_or_init(load))
    }

    /// Returns NCCL.
    ///
    /// # Errors
    /// If it is missing. Copies between GPUs can replace it.
    pub(crate) fn nccl(&self) -> Result<&Binding, Error> {
        self.nccl_loaded().map(|(_, binding)| binding)
    }

    /// Returns NCCL with its version.
    ///
    /// # Errors
    /// If it is missing.
    pub(crate) fn nccl_loaded(&self) -> Result<&(LoadedLibrary, Binding), Error> {
        as_device_error(self.nccl.get_or_init(|| {
            let library = self.load(&NCCL, &[2])?;
            let binding = Binding::new(&library);
            Ok((library, binding))
        }))
    }

    /// Opens a library and checks it.
    fn load(&self, spec: &LibrarySpec, majors: &[usize]) -> Result<LoadedLibrary, String> {
        LoadedLibrary::new(self.open(spec, majors)?, spec)
    }

    /// Opens a library from the first folder that has it: folders of the user, of the loader, then
    /// all others.
    fn open(&self, spec: &LibrarySpec, majors: &[usize]) -> Result<Library, String> {
        let names: Vec<String> = majors.iter().map(|it| format!("{}{it}", spec.stem)).collect();
        let within = |folders: &[PathBuf]| -> Vec<PathBuf> {
            let all = folders.iter().flat_map(|folder| names.iter().map(|it| folder.join(it)));
            all.filter(|it| it.exists()).collect()
        };
        let by_loader: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        let (explicit, standard) = (within(&self.folders.explicit), within(&self.folders.standard));
        let n_known = by_loader.len();
        let mut refusal = None;
        for (place, path) in explicit.iter().chain(&by_loader).chain(&standard).enumerate() {
            open_builtins_next_to(path);
            match open(path) {
                Ok(library) => return Ok(library),
                // The loader need not know a name, but a file that exists and cannot be opened is
                // an error.
                Err(why) if !(explicit.len()..explicit.len() + n_known).contains(&place) => {
                    refusal.get_or_insert(why);
                }
                Err(_) => {}
            }
        }
        Err(refusal.map_or_else(|| spec.missing(majors), |why| format!("{}: {why}", spec.name)))
    }

    /// Returns the major versions of CUDA that fit the driver, the preferred one first.
    fn cuda_majors(&self) -> Vec<usize> {
        match self.driver {
            Ok(version) if version < 13_000 => vec![12, 13],
            Ok(_) | Err(_) => vec![13, 12],
        }
    }
}

fn device_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device, message)
}

fn as_device_error<T>(library: &Result<T, String>) -> Result<&T, Error> {
    library.as_ref().map_err(device_error)
}

/// Checks that the driver supports the output of a library. Drivers reject code of later CUDA
/// versions.
fn check_major(
    spec: &LibrarySpec,
    [major, minor, _]: [usize; 3],
    driver: i32,
) -> Result<(), Error> {
    if usize::try_from(driver / 1000).is_ok_and(|it| major <= it) {
        return Ok(());
    }
    let (name, found) = (spec.name, Version(driver));
    Err(device_error(format!(
        "expected a driver for CUDA {major}.0 or later, as {name} {major}.{minor} needs, found one for {found}: update the driver, or install \
         the libraries of its own version of CUDA"
    )))
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: these are NVIDIA's libraries, which run only their own initializers.
    unsafe { Library::new(path) }.map_err(|error| error.to_string())
}

fn open_builtins_next_to(path: &Path) {
    let name = path.file_name().map(|it| it.to_string_lossy()).unwrap_or_default();
    let Some(major) = name.strip_prefix(NVRTC.stem) else { return };
    let start = format!("{NVRTC_BUILTINS}{major}.");
    let beside = path.parent().and_then(|folder| search::file_with_prefix(folder, &start));
    if let Some(library) = beside.and_then(|it| open(&it).ok()) {
        // NVRTC finds it among the open libraries, so it stays open.
        std::mem::forget(library);
    }
}

/// Returns the version of the driver.
fn load_driver() -> Result<i32, String> {
    // SAFETY: only opens the library.
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
        Err(error) => Err(gpu::driver_error("starting the driver", error).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_may_not_be_newer_than_the_driver() {
        assert_eq!(check_major(&NVRTC, [12, 9, 0], 12_040), Ok(()));
        assert_eq!(check_major(&NVRTC, [12, 9, 0], 13_000), Ok(()));
        let error = check_major(&CUBLASLT, [13, 1, 0], 12_080).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected a driver for CUDA 13.0 or later, as cuBLASLt 13.1 needs, found one for 12.8: update the driver, or install \
             the libraries of its own version of CUDA"
        );
    }

    #[test]
    fn errors_of_missing_libraries_say_where_to_get_them() {
        let folders = SearchFolders { explicit: Vec::new(), standard: Vec::new() };
        let found = Installation::with(Err(String::new()), 0, folders);
        let (name, stem) = ("X", "libsoybean-none.so.");
        let spec = LibrarySpec { name, stem, product: "X", package: "none", ..NVRTC };
        let message = found.open(&spec, &[2, 1]).unwrap_err();
        assert_eq!(
            message,
            "X: expected libsoybean-none.so.2 or libsoybean-none.so.1, found none: install X or Python's package none, or set \
             SOYBEAN_CUDA_LIBS to its folder"
        );
    }
}
