//! Collectives by NCCL. A thread for each rank makes its calls, as NCCL's guide recommends: ranks
//! that connect at their first call then wait for each other on different threads.
#![expect(unsafe_code, reason = "NCCL is a C library")]

mod binding;
mod finish;
mod unique_id;

use std::{
    ffi::{c_int, c_void},
    ops::Range,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
    time::{Duration, Instant},
};

use soybean_plan::{Combine, DType};

use self::binding::{
    Config, IN_PROGRESS, NcclResult, RawCommunicator, Reduce, data_type, reduce_op,
};
pub(crate) use self::{binding::Binding, unique_id::UniqueId};
use super::{gpu::Gpu, libraries::installation, peers::Peers, stream::Stream};
use crate::{Error, ErrorKind, backoff::Backoff};

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
    /// Set after an error, when the GPUs may wait for each other for ever.
    has_failed: AtomicBool,
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

/// A rank's part of a collective.
#[derive(Clone)]
pub(crate) struct RankCall {
    pub(crate) operation: NcclOperation,
    /// Elements per rank, as the operation counts them.
    pub(crate) n_elements: usize,
    pub(crate) dtype: DType,
    /// Address of the send buffer.
    pub(crate) send: u64,
    /// Address of the receive buffer. It may equal `send` for an in-place collective.
    pub(crate) receive: u64,
}

impl CommunicatorGroup {
    /// Initializes the communicators of a group of `group_size` ranks. `local` gives the ranks of
    /// this process by their rank in the group. The other processes call this at the same time.
    /// `timeout` limits the time for which this waits for them.
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
            has_failed: AtomicBool::new(false),
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
        let all = (&what[..], 0..group.gpus.len());
        let checked = group.check_results(all, started, &group.peers_within(&what, timeout));
        let checked = checked.map_err(|error| peers.root_cause(error));
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

    /// Queues the part of one local rank of some collectives, as one group of NCCL. The work is
    /// queued when this returns. Each rank needs a thread of its own: NCCL may wait here for the
    /// other ranks. `keeps_waiting` is called while NCCL works in the background.
    ///
    /// # Safety
    /// Both addresses hold the elements that [`NcclOperation`] states, on the GPU of the rank and
    /// the stream. Nothing else uses them until the collectives complete. No other thread makes
    /// calls for this rank.
    pub(crate) unsafe fn queue(
        &self,
        at: usize,
        calls: &[RankCall],
        stream: &Stream,
        keeps_waiting: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(first) = calls.first() else { return Ok(()) };
        let what = first.operation.name();
        let communicator = self.communicators[at].load(Ordering::Acquire);
        if communicator.is_null() {
            let message = format!("{what}: expected a communicator, found that it was aborted");
            return Err(Error::new(ErrorKind::Device, message));
        }
        let raw = stream.raw()?;
        self.start_group(what)?;
        // SAFETY: required of the caller.
        let called = calls.iter().map(|it| unsafe { self.call(it, at, communicator, raw.cast()) });
        let results = [combined_result(called), self.end_group()].into_iter();
        let what = format!("{what} of {:?}", self.gpus[at]);
        let checked = self.check_results((&what, at..at + 1), results, keeps_waiting);
        let restored = self.gpus[at].make_current();
        // NCCL does not say which work before it has failed.
        checked.map_err(|error| stream.failure().unwrap_or(error)).and(restored)
    }

    /// Makes a call for one rank.
    ///
    /// # Safety
    /// As [`Self::queue`].
    unsafe fn call(
        &self,
        call: &RankCall,
        at: usize,
        communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> NcclResult {
        let &RankCall { ref operation, n_elements, dtype, send, receive } = call;
        let addresses = [send, receive];
        let (send, receive) = (pointer(send), pointer(receive));
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
                unsafe { self.send_and_receive(messages, dtype, addresses, communicator, stream) }
            }
            NcclOperation::Exchange(counts) => {
                let (own, n) = (self.group_ranks[at], self.group_size);
                let messages = (0..n).map(|peer| [counts[peer * n + own], counts[own * n + peer]]);
                // SAFETY: required of the caller.
                unsafe { self.send_and_receive(messages, dtype, addresses, communicator, stream) }
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
        [mut to_send, mut to_receive]: [u64; 2],
        communicator: RawCommunicator,
        stream: *mut c_void,
    ) -> NcclResult {
        let of = data_type(dtype);
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
        self.is_in_progress(0..self.gpus.len()).map(|_| ())
    }

    /// Returns the communicators of these local ranks that are initialized or being initialized.
    fn communicators(
        &self,
        local: Range<usize>,
    ) -> impl Iterator<Item = (&Arc<Gpu>, RawCommunicator)> {
        let all = self.communicators[local.clone()].iter().map(|it| it.load(Ordering::Acquire));
        self.gpus[local].iter().zip(all).filter(|it| !it.1.is_null())
    }

    /// Returns true if NCCL is working in the background, for example to connect ranks.
    fn is_in_progress(&self, local: Range<usize>) -> Result<bool, Error> {
        let mut is_in_progress = false;
        for (gpu, communicator) in self.communicators(local) {
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

    /// Checks the results of a group of calls of local ranks, and waits for NCCL's work in the
    /// background. That work may wait for other processes. Nothing may be queued behind the calls
    /// before it is done.
    fn check_results(
        &self,
        (what, local): (&str, Range<usize>),
        results: impl Iterator<Item = NcclResult>,
        keeps_waiting: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        match combined_result(results) {
            0 => Ok(()),
            IN_PROGRESS => {
                let mut backoff = Backoff::default();
                while self.is_in_progress(local.clone())? {
                    keeps_waiting()
                        .inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))?;
                    backoff.pause();
                }
                Ok(())
            }
            result => Err(self.error_of(what, result)),
        }
    }

    /// Returns a check that the other processes still take part, and that this takes no longer than
    /// `limit`.
    fn peers_within(&self, what: &str, limit: Option<Duration>) -> impl Fn() -> Result<(), Error> {
        let started = Instant::now();
        move || {
            self.peers.check(started)?;
            let Some(limit) = limit.filter(|it| started.elapsed() > *it) else { return Ok(()) };
            let message = format!(
                "{what}: expected that NCCL starts it within {limit:?}, found it in progress"
            );
            Err(Error::new(ErrorKind::Device, message))
        }
    }

    fn error_of(&self, what: &str, result: NcclResult) -> Error {
        self.has_failed.store(true, Ordering::Relaxed);
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
