//! The error type of a run: opaque, with a kind that programs can match on.
//!
//! It is in this crate because the crates of data, checkpoints and the runtime share it, and this
//! is the only crate on which all of them depend.

use std::{
    any::Any,
    cell::Cell,
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::Once,
    thread,
};

use crate::printable;

/// An error that occurred while a program was loaded or run, or a file was read or written.
///
/// It displays as what was expected and what was found, also in the debug format, which Rust prints
/// for an error that `main` returns.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The batch does not fit the model: number of tensors, type, length, or range of a label.
    Batch,
    /// The parameters given do not fit the model: name or shape.
    Parameters,
    /// The loss, the norm of the gradients or the next value of a parameter, a buffer or a state is
    /// not finite.
    Loss,
    /// The device that was asked for cannot be used.
    Device,
    /// A user's operator does not do what its notation and its gradient say.
    Operator,
    /// The program is inconsistent: for example, a kernel reads past the end of a buffer.
    Program,
    /// A rank failed, now or in an earlier step.
    Rank,
    /// Several processes cannot be started together, or execute different commands.
    Process,
    /// An option of the run cannot be parsed, or contradicts another.
    Choice,
    /// A file of results cannot be written.
    Output,
    /// A data file cannot be read or has unexpected contents.
    Data,
    /// A checkpoint or a file of tensors cannot be written, is incomplete, or has unexpected
    /// contents.
    Checkpoint,
    /// A checkpoint or a file of tensors cannot be read, for want of a permission or because the
    /// device fails. It may be intact.
    Unreadable,
}

impl Error {
    /// Creates an error of this kind. The message says what was expected, and what was found where.
    /// It may contain any text of a file, because it is made [`printable`].
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: printable(&message.into()) }
    }

    /// Appends lines to the message, such as those of a compiler.
    #[must_use]
    pub fn with_lines(mut self, lines: &[&str]) -> Self {
        for line in lines {
            self.message.push('\n');
            self.message.push_str(&printable(line));
        }
        self
    }

    /// Creates the error of a dataset that cannot be read or has unexpected contents.
    #[must_use]
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Prefixes the message with the rank on which the error occurred.
    #[must_use]
    pub fn on_rank(self, rank: usize) -> Self {
        Self { kind: self.kind, message: format!("rank {rank}: {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Returns the message of a panic that was caught, as [`std::thread::JoinHandle::join`] gives it.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

thread_local! {
    /// True while this thread runs a function whose panic becomes an error.
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function that may panic on the contents of a file, such as a decoder of another crate.
///
/// A panic becomes a message, and the panic hook is not called for it. A program that is built with
/// `panic = "abort"` ends instead.
///
/// ```
/// let found = soybean_plan::caught(|| [0_u8; 2][usize::from(b'x')]);
/// assert!(found.unwrap_err().starts_with("panicked: index out of bounds"));
/// ```
///
/// # Errors
/// The message of the panic.
pub fn caught<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // The hook cannot be changed by a thread that panics.
    if !thread::panicking() {
        HOOK.call_once(|| {
            let hook = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                if !IS_CATCHING.get() {
                    hook(panic);
                }
            }));
        });
    }
    let was_catching = IS_CATCHING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(function));
    IS_CATCHING.set(was_catching);
    result.map_err(|panic| format!("panicked: {}", panic_message(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn an_error_of_main_reads_as_a_sentence() {
        let error = Error::data("x.csv: line 2: expected a number, found `two`");
        assert_eq!(format!("{error:?}"), "x.csv: line 2: expected a number, found `two`");
    }
}
