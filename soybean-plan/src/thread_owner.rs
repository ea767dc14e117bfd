//! The process in which threads run. A fork copies the memory of a process, but none of its other
//! threads, so the copy would wait for them for ever.

use std::process;

use crate::{Error, ErrorKind};

/// The process that started threads, for those who wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOwner(u32);

impl ThreadOwner {
    /// Returns this process.
    #[must_use]
    pub fn this_process() -> Self {
        Self(process::id())
    }

    /// Returns true in the process that started the threads.
    #[must_use]
    pub fn is_here(self) -> bool {
        self == Self::this_process()
    }

    /// Checks that this is the process that started the threads of `what`.
    ///
    /// # Errors
    /// In a process that was forked from it.
    pub fn check(self, what: &str) -> Result<(), Error> {
        if self.is_here() {
            return Ok(());
        }
        let (made_in, here) = (self.0, process::id());
        let message = format!(
            "{what} of process {made_in} is used in process {here}, to which a fork copied no \
             threads: make it after the fork"
        );
        Err(Error::new(ErrorKind::Process, message))
    }
}
