//! Reading files that may be compressed with gzip, and errors that name a file.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

use crate::Error;

/// Creates an error that names a file.
pub(super) fn named(path: &Path, message: &str) -> Error {
    Error::data(format!("{}: {message}", path.display()))
}

/// Creates the error of a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    named(path, &format!("expected a file that can be read, found: {error}"))
}

/// Returns the name of a file up to the first dot.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Opens a file. If it begins like a gzip file, its contents are decompressed as they are read.
///
/// # Errors
/// If the file cannot be opened or read. The error names it.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, Error> {
    let to_error = |error| unreadable(path, &error);
    let mut file = BufReader::new(File::open(path).map_err(to_error)?);
    let is_compressed = file.fill_buf().map_err(to_error)?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

/// Reads all bytes of a file. If it begins like a gzip file, they are decompressed.
///
/// # Errors
/// If the file cannot be read, or is compressed and truncated. The error names it.
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
