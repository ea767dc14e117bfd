//! Files that may be compressed by gzip.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

use crate::Error;

/// That this is wrong with a file.
pub(super) fn named(path: &Path, message: &str) -> Error {
    Error::data(format!("{}: {message}", path.display()))
}

/// That the system does not let a file be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    named(path, &format!("expected a file that can be read, found: {error}"))
}

/// The name of a file without what follows the first dot.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Opens a file; its contents are decompressed as they are read where it begins as gzip files do.
///
/// # Errors
/// If it cannot be opened or read; the error names it.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, Error> {
    let fault = |error| unreadable(path, &error);
    let mut file = BufReader::new(File::open(path).map_err(fault)?);
    let is_compressed = file.fill_buf().map_err(fault)?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// The bytes of a file, decompressed where it begins as gzip files do.
///
/// # Errors
/// If it cannot be read, or is compressed and not whole; the error names it.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(|error| {
        let message = format!(
            "{}: after {} bytes: expected more data or the end, found: {error}",
            path.display(),
            bytes.len()
        );
        Error::data(message)
    })?;
    Ok(bytes)
}
