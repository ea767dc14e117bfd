//! Files of tensors in the format safetensors: a header in JSON, then the elements.
//!
//! The crate `safetensors` reads and writes the header. The elements are streamed by this module,
//! because that crate needs whole files in memory.

mod read;
mod write;

pub(crate) use read::{Entry, Reader, entries, n_bytes_of, read_chunks, text};
pub(crate) use write::{Sum, Writer, header};

use std::{io, path::Path};

use crate::{Error, ErrorKind};

/// The entry of a file for the hashes of how the model uses its parameters, by name.
const USE_HASHES: &str = "soybean.use_hashes";

/// Creates the error of a file with unexpected contents.
pub(crate) fn checkpoint_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

/// Creates the error of a failed system call: `what` was expected to be done with this file.
pub(crate) fn io_error(what: &str, path: &Path, error: &io::Error) -> Error {
    checkpoint_error(format!("{}: expected to {what}, found: {error}", path.display()))
}

/// Creates the error of a system call that reads. It is of another kind than damage if it tells
/// nothing of the contents, such as a missing permission or a fault of the device.
pub(crate) fn read_error(what: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind::{
        InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof,
    };
    let damage = [InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound, UnexpectedEof];
    let kind = match damage.contains(&error.kind()) {
        true => ErrorKind::Checkpoint,
        false => ErrorKind::Unreadable,
    };
    Error::new(kind, io_error(what, path, error).to_string())
}
