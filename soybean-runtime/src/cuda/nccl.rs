//! Collectives by NCCL. One thread makes the calls of all ranks of its process.
#![expect(unsafe_code, reason = "NCCL is a C library")]

mod binding;
mod finish;
mod unique_id;

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use soybean_plan::{Combine, DType};

use self::binding::{
    Config, IN_PROGRESS, NcclResult, RawCommunicator, Reduce, data_type, reduce_op,
};
pub(crate) use self::{binding::Binding, unique_id::UniqueId};
use super::{gpu::Gpu, libraries::installation, peers::Peers, stream::Stream};
use crate::{Error, ErrorKind};

/// The communicators of one group of ranks, as far as they are in this process. Each rank has its
/// own GPU.
pub(crate) struct CommunicatorGroup {
    nccl: &'static Binding,
    /// Number of ranks of the group in all processes.
    group_size: usize,
    /// For each GPU of this process, the rank in the group.
    group_ranks: Vec<usize>,
    gpus: Vec<Arc<Gpu>>,
    /// One communicator for each GPU. NCCL writes them from its own threads during initialization.
    communicators: Vec<AtomicPtr<c_void>>,
    peers: Arc<dyn Peers>,
    /// Time limit for a call that waits for other processes.
    timeout: Option<Duration>,
    /// Set after an error, when the GPUs may wait for each other for ever.
    has_failed: Cell<bool>,
}

// SAFETY: communicators may be used from any thread, one at a time.
unsafe impl Send for CommunicatorGroup {}

/// Stream and buffers of one rank in a collective.
#[derive(Clone, Copy)]
pub(crate) struct Participant<'a> {
    /// Stream that the collective is queued on.
    pub(crate) stream: &'a Stream,
    /// Address of the send buffer.
    pub(crate) send: u64,
    /// Address of the receive buffer. It may equal `send` for an in-place collective.
    pub(crate) receive: u64,
}

/// Kinds of NCCL calls of `n` elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NcclOperation {
    /// Each rank sends and receives `n` elements.
    AllReduce(Combine),
    /// Each rank sends `n` elements for each rank of the group and receives `n`.
    ReduceScatter(Combine),
    /// Each rank sends `n` elements and receives `n` from each rank of the group.
    AllGather,
    /// Each rank sends `n` elements to each rank of the group. The buffers do not overlap.
    AllToAll,
    /// Each rank sends to each other rank of the group as many elements as it is to receive: entry
    /// `receiver * group_size + sender`. Messages lie one after another in the order of the peers.
    Exchange(Arc<[usize]>),
}

impl NcclOperation {
    /// Returns the name in messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all-reduce",
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::AllToAll => "all-to-all",
            Self::Exchange(_) => "exchange",
        }
    }
}

/// A collective of a group.
#[derive(Clone)]
pub(crate) struct GroupCall<'a> {
    pub(crate) operation: NcclOperation,
    /// Elements per rank, as the operation counts them.
    pub(crate) n_elements: usize,
    pub(crate) dtype: DType,
    /// The local ranks, with the same streams in all calls of a group.
    pub(crate) participants: Vec<Participant<'a>>,
}

impl CommunicatorGroup {
    /// Initializes the communicators of a group of `group_size` ranks. `local` gives the ranks of
    /// this process by their rank in the group. The other processes call this at the same time.
    /// `timeout` limits each call that waits for them.
    ///
    /// # Errors
    /// If NCCL is missing or cannot connect the ranks, for example if two share a GPU, or if
    /// another process fails.
    pub(crate) fn new(
        id: &UniqueId,
        group_size: usize,
        local: &[(usize, Arc<Gpu>)],
        (peers, timeout): (&Arc<dyn Peers>, Option<Duration>),
    ) -> Result<Self, Error> {
        let group = Self {
            nccl: installation().nccl()?,
            group_size,
            group_ranks: local.iter().map(|it| it.0).collect(),
            gpus: local.iter().map(|it| Arc::clone(&it.1)).collect(),
            communicators: local.iter().map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            peers: Arc::clone(peers),
            timeout,
            has_failed: Cell::new(false),
        };
        let what = format!("connecting {:?}", group.gpus);
        group.start_group(&what)?;
        let pointers = local.iter().zip(&group.communicators);
        let started = pointers.map(|((group_rank, gpu), pointer_slot)| {
            gpu.make_current()?;
            Ok(group.init_rank(id, *group_rank, pointer_slot))
        });
        let started: Result<Vec<NcclResult>, Error> = started.collect();
        let group_ended = group.end_group();
        let started = started?.into_iter().chain([group_ended]);
        let checked = group.check_results(&what, started);
        let restored = restore_context(&group.gpus);
        checked.and(restored).and_then(|()| group.check()).map(|()| group)
    }

    /// Returns true if some ranks of the group are in other processes.
    fn spans_processes(&self) -> bool {
        self.gpus.len() < self.group_size
    }

    /// Starts the initialization of a rank's communicator on the current device.
    ///
    /// Only groups that span processes are non-blocking. Their calls can wait for a lost process,
    /// and NCCL's documentation requires this mode for `ncclCommAbort`. It costs a thread of NCCL
    /// for each group of calls. In a group within this process no call waits for a peer.
    fn init_rank(
        &self,
        id: &UniqueId,
        group_rank: usize,
        pointer_slot: &AtomicPtr<c_void>,
    ) -> NcclResult {
        let count = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let (group_size, group_rank) = (count(self.group_size), count(group_rank));
        match self.nccl.non_blocking.filter(|_| self.spans_processes()) {
            // SAFETY: the pointer stays valid until the communicator is destroyed or aborted.
            Some(calls) => unsafe {
                (calls.init_rank)(
                    pointer_slot.as_ptr(),
                    group_size,
                    id.raw(),
                    group_rank,
                    &Config::NON_BLOCKING,
                )
            },
            // SAFETY: as above.
            None => unsafe {
                (self.nccl.init_rank)(pointer_slot.as_ptr(), group_size, id.raw(), group_rank)
            },
        }
    }

    /// Queues collectives on all local ranks, as one group of NCCL. The work is queued when this
    /// returns.
    ///
    /// # Safety
    /// For each rank, both addresses hold the elements that [`NcclOperation`] states, on its GPU.
    /// Nothing else uses them until the collectives complete.
    pub(crate) unsafe fn queue(&self, calls: &[GroupCall<'_>]) -> Result<(), Error> {
        let Some(first) = calls.first() else { return Ok(()) };
        let what = first.operation.name();
        let expected = self.gpus.len();
        if let Some(found) = calls.iter().map(|it| it.participants.len()).find(|it| *it != expected)
        {
            let message = format!("{what}: expected {expected} ranks, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let streams: Vec<_> =
            first.participants.iter().map(|it| it.stream.raw()).collect::<Result<_, _>>()?;
        self.start_group(what)?;
        let ranks = |call| {
            let ranks = self.communicators().map(|it| it.1).zip(streams.iter().copied());
            ranks.enumerate().map(move |(at, (communicator, stream))| {
                // SAFETY: required of the caller.
                unsafe { self.call(call, at, communicator, stream.cast()) }
            })
        };
        let called = combined_result(calls.iter().flat_map(ranks));
        let results = [called, self.end_group()].into_iter();
        let checked = self.check_results(&format!("{what} among {:?}", self.gpus), results);
        let restored = restore_context(&self.gpus);
        checked.and(restored)
    }

    /// Makes a call for one rank.
    ///
    /// # Safety
    /// As [`Self::queue`].
    unsafe fn call(
        &self,
        call: &GroupCall<'_>,
        at: usize,
        communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> NcclResult {
        let &GroupCall { ref operation, n_elements, dtype, ref participants } = call;
        let participant = participants[at];
        let (send, receive) = (pointer(participant.send), pointer(participant.receive));
        let of = data_type(dtype);
        let reduced = |function: Reduce, combine| {
            let combine = reduce_op(combine);
            // SAFETY: required of the caller.
            unsafe { function(send, receive, n_elements, of, combine, communicator, stream) }
        };
        match operation {
            NcclOperation::AllReduce(combine) => reduced(self.nccl.all_reduce, *combine),
            NcclOperation::ReduceScatter(combine) => reduced(self.nccl.reduce_scatter, *combine),
            // SAFETY: required of the caller.
            NcclOperation::AllGather => unsafe {
                (self.nccl.all_gather)(send, receive, n_elements, of, communicator, stream)
            },
            NcclOperation::AllToAll => {
                let messages = (0..self.group_size).map(|_| [n_elements; 2]);
                // SAFETY: required of the caller.
                unsafe { self.send_and_receive(messages, dtype, participant, communicator, stream) }
            }
            NcclOperation::Exchange(counts) => {
                let (own, n) = (self.group_ranks[at], self.group_size);
                let messages = (0..n).map(|peer| [counts[peer * n + own], counts[own * n + peer]]);
                // SAFETY: required of the caller.
                unsafe { self.send_and_receive(messages, dtype, participant, communicator, stream) }
            }
        }
    }

    /// Sends and receives messages of one rank: for each peer the numbers of elements, which lie
    /// one after another.
    ///
    /// # Safety
    /// As [`Self::queue`].
    unsafe fn send_and_receive(
        &self,
        messages: impl Iterator<Item = [usize; 2]>,
        dtype: DType,
        participant: Participant<'_>,
        communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> NcclResult {
        let of = data_type(dtype);
        let [mut to_send, mut to_receive] = [participant.send, participant.receive];
        combined_result(messages.zip(0..).map(|([n_sent, n_received], peer): (_, c_int)| {
            let (send, receive) = (pointer(to_send), pointer(to_receive));
            to_send += (n_sent * dtype.bytes()) as u64;
            to_receive += (n_received * dtype.bytes()) as u64;
            let sent = match n_sent {
                0 => 0,
                // SAFETY: required of the caller.
                _ => unsafe { (self.nccl.send)(send, n_sent, of, peer, communicator, stream) },
            };
            if ![0, IN_PROGRESS].contains(&sent) || n_received == 0 {
                return sent;
            }
            // SAFETY: required of the caller.
            unsafe { (self.nccl.receive)(receive, n_received, of, peer, communicator, stream) }
        }))
    }

    /// Checks the communicators for asynchronous errors.
    ///
    /// # Errors
    /// The error of a collective that was queued before.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.is_in_progress().map(|_| ())
    }

    /// Returns the communicators that are initialized or being initialized.
    fn communicators(&self) -> impl Iterator<Item = (&Arc<Gpu>, RawCommunicator)> {
        let all = self.communicators.iter().map(|it| it.load(Ordering::Acquire));
        self.gpus.iter().zip(all).filter(|it| !it.1.is_null())
    }

    /// Returns true if NCCL is working in the background, for example to connect ranks.
    fn is_in_progress(&self) -> Result<bool, Error> {
        let mut is_in_progress = false;
        for (gpu, communicator) in self.communicators() {
            let mut found = 0;
            // SAFETY: the communicator is valid, and the result is a local variable.
            let asked = unsafe { (self.nccl.async_error)(communicator, &mut found) };
            match if asked == 0 { found } else { asked } {
                0 => {}
                IN_PROGRESS => is_in_progress = true,
                result => {
                    return Err(self.error_of(&format!("communication of {gpu:?}"), result));
                }
            }
        }
        Ok(is_in_progress)
    }

    fn start_group(&self, what: &str) -> Result<(), Error> {
        // SAFETY: every started group is ended.
        match unsafe { (self.nccl.group_start)() } {
            0 => Ok(()),
            result => Err(self.error_of(what, result)),
        }
    }

    fn end_group(&self) -> NcclResult {
        // SAFETY: a group was started.
        unsafe { (self.nccl.group_end)() }
    }

    /// Checks the results of a group of calls, and waits for NCCL's work in the background. That
    /// work may wait for other processes. Nothing may be queued behind the calls before it is done.
    fn check_results(
        &self,
        what: &str,
        results: impl Iterator<Item = NcclResult>,
    ) -> Result<(), Error> {
        match combined_result(results) {
            0 => Ok(()),
            IN_PROGRESS => self.wait_until_idle(what, self.timeout),
            result => Err(self.error_of(what, result)),
        }
    }

    /// Waits until NCCL has no work in the background, at most for this time.
    fn wait_until_idle(&self, what: &str, limit: Option<Duration>) -> Result<(), Error> {
        let started = Instant::now();
        while self.is_in_progress().map_err(|error| self.peers.root_cause(error))? {
            self.peers.check(started).inspect_err(|_| self.has_failed.set(true))?;
            if let Some(limit) = limit.filter(|it| started.elapsed() > *it) {
                self.has_failed.set(true);
                let message = format!(
                    "{what}: expected that NCCL starts it within {limit:?}, found it in progress"
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn error_of(&self, what: &str, result: NcclResult) -> Error {
        self.has_failed.set(true);
        let message = format!("{what}: NCCL: {}", self.nccl.error_text(result));
        Error::new(ErrorKind::Device, message)
    }
}

/// Restores this thread's current context, which NCCL calls may change.
fn restore_context(gpus: &[Arc<Gpu>]) -> Result<(), Error> {
    gpus.last().map_or(Ok(()), |it| it.make_current())
}

/// Combines the results of several calls: the first error, otherwise whether work is in progress.
/// No call is made after an error.
fn combined_result(mut results: impl Iterator<Item = NcclResult>) -> NcclResult {
    let mut all = 0;
    let is_failure = |it: &NcclResult| ![0, IN_PROGRESS].contains(it);
    results.by_ref().inspect(|it| all = all.max(*it)).find(is_failure).unwrap_or(all)
}

fn pointer(address: u64) -> *mut c_void {
    address as *mut c_void
}

#[cfg(test)]
mod tests;
