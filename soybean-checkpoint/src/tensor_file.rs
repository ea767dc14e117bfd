//! Files of tensors in the format safetensors: a header in JSON, then the elements one after the other.
//!
//! The header is the crate `safetensors`' own; elements are streamed past it, because that crate takes and gives whole files in memory.

mod read;
mod write;

pub(crate) use read::{Entry, Reader, entries, n_bytes_of, read_chunks, text};
pub(crate) use write::{Sum, Writer, header};

use std::path::Path;

use crate::{Error, ErrorKind};

/// The error of a file that is not what it should be.
pub(crate) fn checkpoint_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

/// The error of a call that the operating system refused: what was expected of which file.
pub(crate) fn io_error(what: &str, path: &Path, error: &std::io::Error) -> Error {
    checkpoint_error(format!("{}: expected to {what}, found: {error}", path.display()))
}
