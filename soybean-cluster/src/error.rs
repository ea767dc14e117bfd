//! Errors of cluster files.

use std::fmt;

/// An error in a cluster file, displayed as `file:line: what is expected, and what was found`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Error {
    /// Returns the line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for Error {}
