//! An opened library, in which functions are looked up by name.
#![expect(unsafe_code, reason = "functions of C libraries are looked up and called")]

#[cfg(unix)]
use std::{ffi::OsStr, mem::MaybeUninit, os::unix::ffi::OsStrExt};
use std::{
    ffi::{CStr, c_char, c_void},
    fmt,
    path::PathBuf,
};

use libloading::Library;

use super::spec::LibrarySpec;
use crate::Error;

/// An opened library that has all functions of its specification.
pub(crate) struct LoadedLibrary {
    /// Major, minor and patch version. NVRTC has no patch version.
    pub(crate) version: [usize; 3],
    /// Path of the file, if the system reports it.
    path: Option<PathBuf>,
    library: Library,
}

impl LoadedLibrary {
    /// Checks an opened library.
    ///
    /// # Errors
    /// If it lacks a function or does not tell its version.
    pub(super) fn new(library: Library, spec: &LibrarySpec) -> Result<Self, String> {
        let mut loaded = Self { version: [0; 3], path: None, library };
        let name = spec.name;
        for function in spec.functions {
            let address = loaded.address(function).ok_or_else(|| {
                format!("{name}: expected {function} in the library, found no such function")
            })?;
            loaded.path = loaded.path.or_else(|| path_with(address));
        }
        let version = (spec.version)(&loaded);
        loaded.version =
            version.ok_or_else(|| format!("{name}: expected a version, found none"))?;
        Ok(loaded)
    }

    fn address(&self, function: &str) -> Option<*const c_void> {
        // SAFETY: any function has an address.
        unsafe { self.function(function) }
    }

    /// Looks up a function.
    ///
    /// # Safety
    /// The function has this type.
    pub(in crate::cuda) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: required of the caller.
        unsafe { self.library.get::<F>(name) }.ok().map(|it| *it)
    }
}

impl fmt::Display for LoadedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{major}.{minor}")?;
        if patch != 0 {
            write!(f, ".{patch}")?;
        }
        self.path.as_ref().map_or(Ok(()), |it| write!(f, " ({})", it.display()))
    }
}

/// Returns the text that a function of a library returns for a status.
///
/// # Safety
/// The function takes any status of this type, and returns a static C string or null.
pub(in crate::cuda) unsafe fn status_text<S>(
    library: Result<&LoadedLibrary, Error>,
    function: &str,
    status: S,
) -> String {
    type Function<S> = unsafe extern "C" fn(S) -> *const c_char;
    // SAFETY: required of the caller.
    let found = library.ok().and_then(|it| unsafe { it.function::<Function<S>>(function) });
    // SAFETY: required of the caller.
    let text = found.map(|it| unsafe { it(status) }).filter(|it| !it.is_null());
    // SAFETY: required of the caller.
    let text = text.map(|it| unsafe { CStr::from_ptr(it) });
    text.map_or_else(|| "unknown status".to_owned(), |it| it.to_string_lossy().into_owned())
}

/// Returns the path of the library that has this address.
#[cfg(unix)]
fn path_with(address: *const c_void) -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address is allowed, and the result is a local variable.
    let is_known = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: all fields are pointers, for which zero is valid.
    let name = unsafe { found.assume_init() }.dli_fname;
    let name = Some(name).filter(|it| is_known && !it.is_null())?;
    // SAFETY: the loader's names are null-terminated and live as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

#[cfg(not(unix))]
const fn path_with(_address: *const c_void) -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use libloading::os::unix;

    use super::*;

    /// Returns this program as a library with these functions and a version.
    fn program(functions: &'static [&'static str]) -> Result<LoadedLibrary, String> {
        let (name, stem, product, package) = ("X", "libx.so.", "X", "x");
        let version = |_: &LoadedLibrary| Some([2, 28, 9]);
        let spec = LibrarySpec { name, stem, product, package, functions, version };
        LoadedLibrary::new(unix::Library::this().into(), &spec)
    }

    #[test]
    fn libraries_are_shown_with_version_and_path() {
        let shown = program(&["malloc"]).ok().unwrap().to_string();
        let path = shown.strip_prefix("2.28.9 (").and_then(|it| it.strip_suffix(')')).unwrap();
        assert!(std::fs::exists(path).unwrap(), "{shown}");
    }

    #[test]
    fn errors_name_missing_functions() {
        let error = program(&["malloc", "soybean_none"]).err().unwrap();
        assert_eq!(error, "X: expected soybean_none in the library, found no such function");
    }
}
