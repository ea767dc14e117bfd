//! Collectives by NCCL. One thread makes the calls of all ranks of its process.
#![expect(unsafe_code, reason = "NCCL is a C library")]

mod binding;
mod unique_id;

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    mem, ptr,
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
    gpus: Vec<Arc<Gpu>>,
    /// One communicator for each GPU. NCCL writes them from its own threads during initialization.
    communicators: Vec<AtomicPtr<c_void>>,
    peers: Arc<dyn Peers>,
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

/// Time limit for `ncclCommFinalize`.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(2);

/// A call for one rank, with its communicator and its stream.
type RankCall<'a> = &'a dyn Fn(Participant<'_>, RawCommunicator, *mut c_void) -> NcclResult;

impl CommunicatorGroup {
    /// Initializes the communicators of a group of `group_size` ranks. `local` gives the ranks of
    /// this process by their rank in the group. The other processes call this at the same time.
    ///
    /// # Errors
    /// If NCCL is missing or cannot connect the ranks, for example if two share a GPU, or if
    /// another process fails.
    pub(crate) fn new(
        id: &UniqueId,
        group_size: usize,
        local: &[(usize, Arc<Gpu>)],
        peers: &Arc<dyn Peers>,
    ) -> Result<Self, Error> {
        let group = Self {
            nccl: installation().nccl()?,
            group_size,
            gpus: local.iter().map(|it| Arc::clone(&it.1)).collect(),
            communicators: local.iter().map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            peers: Arc::clone(peers),
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
        checked.and(restored).map(|()| group)
    }

    /// Starts the initialization of a rank's communicator on the current device.
    fn init_rank(
        &self,
        id: &UniqueId,
        group_rank: usize,
        pointer_slot: &AtomicPtr<c_void>,
    ) -> NcclResult {
        let count = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let (group_size, group_rank) = (count(self.group_size), count(group_rank));
        match self.nccl.non_blocking {
            // SAFETY: the pointer stays valid until the communicator is destroyed in `drop`.
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

    /// Queues an all-reduce of `n_elements` per rank.
    ///
    /// # Safety
    /// For each rank, both addresses hold that many elements on its GPU. Nothing else uses them
    /// until the collective completes.
    pub(crate) unsafe fn all_reduce(
        &self,
        participants: &[Participant<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe {
            self.reduce(
                "all-reduce",
                self.nccl.all_reduce,
                participants,
                n_elements,
                dtype,
                combine,
            )
        }
    }

    /// Queues an all-gather of `n_elements` from each rank.
    ///
    /// # Safety
    /// As [`Self::all_reduce`]; the receive buffer holds `n_elements` times the group size.
    pub(crate) unsafe fn all_gather(
        &self,
        participants: &[Participant<'_>],
        n_elements: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let dtype = data_type(dtype);
        self.grouped_call("all-gather", participants, &|participant, communicator, stream| {
            let (send, receive) = (pointer(participant.send), pointer(participant.receive));
            // SAFETY: required of the caller.
            unsafe {
                (self.nccl.all_gather)(send, receive, n_elements, dtype, communicator, stream)
            }
        })
    }

    /// Queues a reduce-scatter with `n_elements` per rank in the result.
    ///
    /// # Safety
    /// As [`Self::all_reduce`]; the send buffer holds `n_elements` times the group size.
    pub(crate) unsafe fn reduce_scatter(
        &self,
        participants: &[Participant<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe {
            self.reduce(
                "reduce-scatter",
                self.nccl.reduce_scatter,
                participants,
                n_elements,
                dtype,
                combine,
            )
        }
    }

    /// Queues an all-reduce or a reduce-scatter.
    ///
    /// # Safety
    /// As the function requires.
    unsafe fn reduce(
        &self,
        what: &str,
        function: Reduce,
        participants: &[Participant<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        let (dtype, combine) = (data_type(dtype), reduce_op(combine));
        self.grouped_call(what, participants, &|participant, communicator, stream| {
            let (send, receive) = (pointer(participant.send), pointer(participant.receive));
            // SAFETY: required of the caller.
            unsafe { function(send, receive, n_elements, dtype, combine, communicator, stream) }
        })
    }

    /// Queues an all-to-all of `n_elements` from each rank to each rank.
    ///
    /// # Safety
    /// As [`Self::all_reduce`]; both buffers hold `n_elements` times the group size and do not
    /// overlap.
    pub(crate) unsafe fn all_to_all(
        &self,
        participants: &[Participant<'_>],
        n_elements: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let n_bytes = (n_elements * dtype.bytes()) as u64;
        let (dtype, group_size) = (data_type(dtype), self.group_size);
        self.grouped_call("all-to-all", participants, &|participant, communicator, stream| {
            let peers = (0..group_size as u64).zip(0..).map(|(peer, group_rank): (u64, c_int)| {
                let (send, receive) = (
                    pointer(participant.send + peer * n_bytes),
                    pointer(participant.receive + peer * n_bytes),
                );
                // SAFETY: required of the caller.
                let sent = unsafe {
                    (self.nccl.send)(send, n_elements, dtype, group_rank, communicator, stream)
                };
                if ![0, IN_PROGRESS].contains(&sent) {
                    return sent;
                }
                // SAFETY: required of the caller.
                unsafe {
                    (self.nccl.receive)(
                        receive,
                        n_elements,
                        dtype,
                        group_rank,
                        communicator,
                        stream,
                    )
                }
            });
            combined_result(peers)
        })
    }

    /// Checks the communicators for asynchronous errors.
    ///
    /// # Errors
    /// The error of a collective that was queued before.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.is_in_progress().map(|_| ())
    }

    /// Finalizes and destroys the communicators after their work is complete. Communicators that do
    /// not work are left for `drop`, which aborts them.
    pub(crate) fn close(&mut self) {
        if !self.has_failed.get() && self.check().is_ok() && self.finalize().is_ok() {
            self.end(self.nccl.destroy);
        }
    }

    /// Ends all remaining communicators with the given function.
    fn end(&mut self, end: unsafe extern "C" fn(RawCommunicator) -> NcclResult) {
        let left =
            self.communicators.iter_mut().map(|it| mem::replace(it.get_mut(), ptr::null_mut()));
        let left: Vec<RawCommunicator> = left.filter(|it| !it.is_null()).collect();
        for communicator in &left {
            // SAFETY: created in `new`; whatever NCCL returns, it is not used again.
            let _refused = unsafe { end(*communicator) };
        }
        if !left.is_empty() {
            // If the context cannot be made current, there is nothing left to do.
            let _refused = restore_context(&self.gpus);
        }
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

    /// Makes one call for each local rank, within an NCCL group. The work is queued when this
    /// returns.
    fn grouped_call(
        &self,
        what: &str,
        participants: &[Participant<'_>],
        call: RankCall<'_>,
    ) -> Result<(), Error> {
        if participants.len() != self.gpus.len() {
            let (expected, found) = (self.gpus.len(), participants.len());
            let message = format!("{what}: expected {expected} ranks, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let streams: Vec<_> =
            participants.iter().map(|it| it.stream.raw()).collect::<Result<_, _>>()?;
        self.start_group(what)?;
        let participants = participants.iter().zip(self.communicators()).zip(streams);
        let called = participants.map(|((&participant, (_, communicator)), stream)| {
            call(participant, communicator, stream.cast())
        });
        let called = combined_result(called);
        let results = [called, self.end_group()].into_iter();
        let checked = self.check_results(&format!("{what} among {:?}", self.gpus), results);
        let restored = restore_context(&self.gpus);
        checked.and(restored)
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
            IN_PROGRESS => self.wait_until_idle(Duration::MAX),
            result => Err(self.error_of(what, result)),
        }
    }

    /// Waits until NCCL has no work in the background, at most for this time.
    fn wait_until_idle(&self, at_most: Duration) -> Result<(), Error> {
        let started = Instant::now();
        while self.is_in_progress().map_err(|error| self.peers.root_cause(error))? {
            self.peers.check(started).inspect_err(|_| self.has_failed.set(true))?;
            if started.elapsed() > at_most {
                let message = format!(
                    "expected {:?} to become idle within {at_most:?}, found work in progress",
                    self.gpus
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Finalizes the communicators, possibly together with other processes.
    fn finalize(&self) -> Result<(), Error> {
        let Some(calls) = self.nccl.non_blocking else { return Ok(()) };
        let what = "the end of communication";
        // In one group, since the ranks of a machine may wait for each other.
        self.start_group(what)?;
        // SAFETY: the communicator is valid.
        let started = self.communicators().map(|(_, it)| unsafe { (calls.finalize)(it) });
        let started = combined_result(started);
        match combined_result([started, self.end_group()].into_iter()) {
            0 | IN_PROGRESS => self.wait_until_idle(FINALIZE_TIMEOUT),
            result => Err(self.error_of(what, result)),
        }
    }

    fn error_of(&self, what: &str, result: NcclResult) -> Error {
        self.has_failed.set(true);
        let message = format!("{what}: NCCL: {}", self.nccl.error_text(result));
        Error::new(ErrorKind::Device, message)
    }
}

impl Drop for CommunicatorGroup {
    fn drop(&mut self) {
        // Communicators whose peers have failed must be aborted, or they would wait for ever.
        self.end(self.nccl.abort);
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
