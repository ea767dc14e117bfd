//! Files of which any part can be read by several threads at once.
//!
//! They are read by calls rather than mapped into memory: if another program cuts a file short while it is mapped, the next touch of the mapping ends the process with a signal, and no check before
//! the touch can exclude that. A read of what is gone is an ordinary error, and costs a copy out of the system's cache.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    file::{named, unreadable},
};

/// A file and its size.
#[derive(Debug)]
pub(super) struct PositionedFile {
    file: File,
    path: PathBuf,
    /// In bytes, when it was opened.
    n_bytes: u64,
}

impl PositionedFile {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened, or is no plain file; the error names it.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let fault = |error| unreadable(path, &error);
        let file = File::open(path).map_err(fault)?;
        let about = file.metadata().map_err(fault)?;
        if !about.is_file() {
            return Err(named(path, "expected a plain file, found something else"));
        }
        Ok(Self { file, path: path.to_owned(), n_bytes: about.len() })
    }

    pub(super) const fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads bytes from this place on.
    ///
    /// # Errors
    /// If the file has become shorter, or cannot be read; the error names it and the place.
    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let mut n_read = 0;
        while n_read < bytes.len() {
            match read_at(&self.file, &mut bytes[n_read..], at + n_read as u64) {
                Ok(0) => {
                    let (n, before, end) = (bytes.len(), self.n_bytes, at + n_read as u64);
                    return Err(self.fault(
                        at,
                        &format!(
                            "expected {n} bytes, found the end of the file at byte {end}; it had {before} bytes when it was opened"
                        ),
                    ));
                }
                Ok(n) => n_read += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let n = bytes.len();
                    return Err(self.fault(at, &format!("expected {n} bytes, found: {error}")));
                }
            }
        }
        Ok(())
    }

    /// That this is wrong at this byte.
    pub(super) fn fault(&self, at: u64, message: &str) -> Error {
        named(&self.path, &format!("byte {at}: {message}"))
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, at)
}
