//! Messages between ranks of different processes.
#![expect(unsafe_code, reason = "messages lie in arenas that other ranks read")]

use crate::{Error, abort::Abort};

/// How one rank reaches the ranks of other processes. Messages from one rank to another arrive in the order in which they were sent, each in
/// memory of just its size.
pub(crate) trait Transport: Send {
    /// Begins to receive the next message of a rank.
    ///
    /// # Safety
    /// The memory stays, and nobody else uses it, until [`Self::finish`] has returned without an error; after an error, for ever.
    unsafe fn receive(&mut self, from: usize, to: *mut u8, n_bytes: usize) -> Result<(), Error>;

    /// Begins to send a message to a rank.
    ///
    /// # Safety
    /// As for [`Self::receive`], but others may read the memory.
    unsafe fn send(&mut self, to: usize, from: *const u8, n_bytes: usize) -> Result<(), Error>;

    /// Waits until all messages that were begun have come and gone, or the run has failed.
    fn finish(&mut self, abort: &Abort) -> Result<(), Error>;

    /// Whether nothing is under way.
    fn is_idle(&self) -> bool;
}
