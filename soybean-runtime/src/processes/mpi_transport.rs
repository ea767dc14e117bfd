//! Transport of one rank by MPI point-to-point messages, which allow groups with any number of
//! ranks in each process.
#![expect(unsafe_code, reason = "messages refer to arenas that other ranks read")]

use std::sync::Arc;

use super::{
    mpi_communicator::{MpiCommunicator, Requests},
    progress::{OperationKind, Progress},
    world::{WaitContext, World},
};
use crate::{Error, abort::Abort, transport::Transport};

/// Maximum size of an MPI message. MPI counts bytes in 31 bits, so longer messages are sent in
/// chunks.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Maximum number of ranks of a process. Tags encode the sending and the receiving rank, and MPI
/// guarantees only 2^15 of them.
pub(super) const MAX_LOCAL_RANKS: usize = 128;

/// A rank and its connection to other ranks.
pub(super) struct MpiTransport {
    pub(super) world: &'static World,
    pub(super) communicator: MpiCommunicator,
    pub(super) progress: Arc<Progress>,
    pub(super) rank: usize,
    /// Ranks per process.
    pub(super) n_local: usize,
    pub(super) requests: Requests,
}

impl MpiTransport {
    /// Returns the process of a rank, and the tag of messages between two ranks. Training steps and
    /// evaluations have different tags. Processes that do different things therefore wait and
    /// receive an error, rather than misread a message.
    fn address(&self, peer: usize, (from, to): (usize, usize)) -> (usize, usize) {
        let is_training = usize::from(self.progress.current().1.kind == OperationKind::Train);
        let pair = (from % self.n_local) * self.n_local + to % self.n_local;
        (peer / self.n_local, 2 * pair + is_training)
    }
}

impl Transport for MpiTransport {
    unsafe fn receive(&mut self, from: usize, to: *mut u8, n_bytes: usize) -> Result<(), Error> {
        let address = self.address(from, (from, self.rank));
        chunks(n_bytes, MAX_MESSAGE_BYTES).try_for_each(|(start, length)| {
            let to = to.wrapping_add(start);
            // SAFETY: required of the caller.
            unsafe { self.communicator.begin_receive(address, to, length, &mut self.requests) }
        })
    }

    unsafe fn send(&mut self, to: usize, from: *const u8, n_bytes: usize) -> Result<(), Error> {
        let address = self.address(to, (self.rank, to));
        chunks(n_bytes, MAX_MESSAGE_BYTES).try_for_each(|(start, length)| {
            let from = from.wrapping_add(start);
            // SAFETY: required of the caller.
            unsafe { self.communicator.begin_send(address, from, length, &mut self.requests) }
        })
    }

    fn finish(&mut self, abort: &Abort) -> Result<(), Error> {
        let Self { world, progress, requests, .. } = self;
        world.wait(requests, WaitContext { abort, progress })
    }

    fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Returns the start and length of each chunk of a message.
pub(super) fn chunks(n_bytes: usize, max_piece: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n_bytes).step_by(max_piece).map(move |start| (start, max_piece.min(n_bytes - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_split() {
        let chunks = |n_bytes, max| chunks(n_bytes, max).collect::<Vec<_>>();
        assert_eq!(chunks(0, 4), []);
        assert_eq!(chunks(4, 4), [(0, 4)]);
        assert_eq!(chunks(9, 4), [(0, 4), (4, 4), (8, 1)]);
        let all = chunks(9_000_000_000, MAX_MESSAGE_BYTES);
        assert_eq!(all.iter().map(|it| it.1).sum::<usize>(), 9_000_000_000);
        assert!(all.iter().all(|it| i32::try_from(it.1).is_ok()));
    }
}
