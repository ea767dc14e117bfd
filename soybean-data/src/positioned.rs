//! Files that several threads read at any offset at once.
//!
//! Files are read by system calls and not mapped into memory. If another program truncates a mapped
//! file, the next access ends the process with a signal, and no check can prevent that. A read
//! beyond the new end is an ordinary error. The price is a copy from the system's cache.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use soybean_plan::open_file;

use crate::{
    Error,
    file::{named, unreadable},
};

/// A file and its size.
#[derive(Debug)]
pub(super) struct PositionedFile {
    file: File,
    path: PathBuf,
    /// The size in bytes when the file was opened.
    n_bytes: u64,
}

impl PositionedFile {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file cannot be opened, or is not a plain file. The error names it.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let to_error = |error| unreadable(path, &error);
        let file = open_file(path).map_err(to_error)?;
        let n_bytes = file.metadata().map_err(to_error)?.len();
        Ok(Self { file, path: path.to_owned(), n_bytes })
    }

    pub(super) const fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `bytes` with the bytes of the file from this offset on.
    ///
    /// # Errors
    /// If the file was truncated or cannot be read. The error names the file and the offset.
    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let mut n_read = 0;
        while n_read < bytes.len() {
            match read_at(&self.file, &mut bytes[n_read..], at + n_read as u64) {
                Ok(0) => {
                    let (n, before, end) = (bytes.len(), self.n_bytes, at + n_read as u64);
                    return Err(self.error_at(
                        at,
                        &format!(
                            "expected {n} bytes, found the end of the file at byte {end}; it had \
                             {before} bytes when it was opened"
                        ),
                    ));
                }
                Ok(n) => n_read += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let n = bytes.len();
                    return Err(self.error_at(at, &format!("expected {n} bytes, found: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Creates an error that names the file and the byte offset.
    pub(super) fn error_at(&self, at: u64, message: &str) -> Error {
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
