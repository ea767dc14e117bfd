//! What is wrong with a cluster file.

use std::fmt;

/// A fault of a cluster file, shown as `file:line: what is expected, and what was found`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Error {
    /// The line, counted from 1.
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
