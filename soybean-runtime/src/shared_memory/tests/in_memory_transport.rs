//! A transport in memory, for tests that simulate several processes in one.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use super::{Arc, BTreeMap, Transport};
use crate::{
    Error, ErrorKind,
    abort::{Abort, lock},
};

type MessageQueues = BTreeMap<(usize, usize), VecDeque<Vec<u8>>>;

/// Pending messages by sender and receiver.
#[derive(Default)]
pub(super) struct InMemoryNetwork {
    messages: Mutex<MessageQueues>,
    arrived: Condvar,
}

impl InMemoryNetwork {
    /// Returns the transport of a rank.
    pub(super) fn transport(self: &Arc<Self>, rank: usize) -> Box<dyn Transport> {
        Box::new(InMemoryTransport {
            network: Arc::clone(self),
            rank,
            sends: vec![],
            receives: vec![],
        })
    }

    /// Returns true if all messages were received.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.messages).values().all(VecDeque::is_empty)
    }
}

#[derive(Clone, Copy)]
struct PendingSend {
    to: usize,
    from: *const u8,
    n_bytes: usize,
}

#[derive(Clone, Copy)]
struct PendingReceive {
    from: usize,
    to: *mut u8,
    n_bytes: usize,
}

struct InMemoryTransport {
    network: Arc<InMemoryNetwork>,
    rank: usize,
    sends: Vec<PendingSend>,
    receives: Vec<PendingReceive>,
}

// SAFETY: the memory stays valid until `finish`, on whichever thread that is called.
unsafe impl Send for InMemoryTransport {}

impl Transport for InMemoryTransport {
    unsafe fn receive(&mut self, from: usize, to: *mut u8, n_bytes: usize) -> Result<(), Error> {
        self.receives.push(PendingReceive { from, to, n_bytes });
        Ok(())
    }

    unsafe fn send(&mut self, to: usize, from: *const u8, n_bytes: usize) -> Result<(), Error> {
        self.sends.push(PendingSend { to, from, n_bytes });
        Ok(())
    }

    /// Reads the sent memory as late as the contract allows.
    fn finish(&mut self, abort: &Abort) -> Result<(), Error> {
        let mut messages = lock(&self.network.messages);
        for PendingSend { to, from, n_bytes } in self.sends.drain(..) {
            // SAFETY: the sender keeps the memory unchanged.
            let message = unsafe { std::slice::from_raw_parts(from, n_bytes) }.to_vec();
            messages.entry((self.rank, to)).or_default().push_back(message);
        }
        self.network.arrived.notify_all();
        while let Some(PendingReceive { from, to, n_bytes }) = self.receives.first().copied() {
            if let Some(message) = messages.entry((from, self.rank)).or_default().pop_front() {
                assert_eq!(message.len(), n_bytes, "from {from} to {}", self.rank);
                // SAFETY: the receiver keeps the memory for this message.
                unsafe { to.copy_from_nonoverlapping(message.as_ptr(), n_bytes) };
                self.receives.remove(0);
                continue;
            }
            if abort.is_failed() {
                return Err(Error::new(ErrorKind::Rank, "another rank failed"));
            }
            let wait = self.network.arrived.wait_timeout(messages, Duration::from_millis(10));
            messages = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }
}
