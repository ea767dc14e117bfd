//! Point-to-point messages between ranks of different processes.
#![expect(unsafe_code, reason = "messages refer to arenas that other ranks read")]

use crate::{Error, abort::Abort};

/// Transport of one rank to the ranks of other processes. Messages between two ranks arrive in the
/// order in which they were sent. A receiver knows the size of each message.
pub(crate) trait Transport: Send {
    /// Starts to receive the next message of a rank.
    ///
    /// # Safety
    /// The memory stays valid, and nothing else uses it, until [`Self::finish`] returns without an
    /// error. After an error it must stay valid for ever.
    unsafe fn receive(&mut self, from: usize, to: *mut u8, n_bytes: usize) -> Result<(), Error>;

    /// Starts to send a message to a rank.
    ///
    /// # Safety
    /// As [`Self::receive`], but the memory may be read.
    unsafe fn send(&mut self, to: usize, from: *const u8, n_bytes: usize) -> Result<(), Error>;

    /// Waits until all messages are complete, or the run has failed.
    fn finish(&mut self, abort: &Abort) -> Result<(), Error>;

    /// Returns true if no message is pending.
    fn is_idle(&self) -> bool;
}
