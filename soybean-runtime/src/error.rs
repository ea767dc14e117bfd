//! The one error type of this crate: opaque, with a kind that programs can match on.

use std::fmt;

/// What went wrong when a program was loaded or run, or data were read. It displays as what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The batch does not fit the model: number of tensors, type, length, or a label out of range.
    Batch,
    /// The parameters given do not fit the model: name or shape.
    Parameters,
    /// The loss is not a finite number.
    Loss,
    /// The device that was asked for cannot be used.
    Device,
    /// The program contradicts itself, such as a kernel that reads past the end of a buffer.
    Program,
    /// A rank failed, now or in an earlier step.
    Rank,
    /// Several processes cannot be started together, or do not do the same.
    Process,
    /// A choice of the run cannot be understood, or contradicts another.
    Choice,
    /// A file of results cannot be written.
    Output,
    /// A data file cannot be read or does not hold what it should.
    Data,
    /// A checkpoint or a file of tensors cannot be written or read, or does not hold what it should.
    Checkpoint,
}

impl Error {
    /// An error of this kind: what was expected, and what was found where.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// That a data set cannot be read, or does not hold what it should: what was expected, and what was found where.
    #[must_use]
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// What kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error, said to have happened on this rank.
    pub(crate) fn on_rank(self, rank: usize) -> Self {
        Self { kind: self.kind, message: format!("rank {rank}: {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
