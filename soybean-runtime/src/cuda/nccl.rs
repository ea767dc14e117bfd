//! Collectives of several GPUs by NCCL. Those of one process are all called by one thread.
#![expect(unsafe_code, reason = "NCCL is a C library")]

mod binding;
mod id;

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
    Communicator, IN_PROGRESS, Outcome, Reduce, Settings, operation_number, type_number,
};
pub(crate) use self::{binding::Binding, id::Id};
use super::{gpu::Gpu, libraries::find, others::Others, stream::Stream};
use crate::{Error, ErrorKind};

/// GPUs that communicate with each other, each different: the members that are in this process.
pub(crate) struct Clique {
    nccl: &'static Binding,
    /// How many members there are in all processes.
    n_members: usize,
    gpus: Vec<Arc<Gpu>>,
    /// Those of the GPUs. While they are made, NCCL writes them from threads of its own.
    communicators: Vec<AtomicPtr<c_void>>,
    others: Arc<dyn Others>,
    /// Whether anything has failed: then the GPUs may wait for each other for ever.
    has_failed: Cell<bool>,
}

// SAFETY: communicators may be used from any thread, by one at a time.
unsafe impl Send for Clique {}

/// A member's part in a collective, on its GPU.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    /// When it takes part.
    pub(crate) stream: &'a Stream,
    /// The address of what it gives.
    pub(crate) send: u64,
    /// The address of what it receives; may be `send` where the same elements stay in place.
    pub(crate) receive: u64,
}

/// How long communicators may take to stop whose work is done.
const LEAVING_TAKES: Duration = Duration::from_secs(2);

/// One call for one member: the communicator and the stream are the member's.
type Call<'a> = &'a dyn Fn(Member<'_>, Communicator, *mut c_void) -> Outcome;

impl Clique {
    /// Connects the `n_members` of a clique. Those of this process are given by their numbers among all, in order, with their GPUs; the others join at the same time.
    ///
    /// # Errors
    /// If NCCL is missing or cannot connect them, as where two GPUs are the same, or another process fails meanwhile.
    pub(crate) fn new(
        id: &Id,
        n_members: usize,
        here: &[(usize, Arc<Gpu>)],
        others: &Arc<dyn Others>,
    ) -> Result<Self, Error> {
        let clique = Self {
            nccl: find().nccl()?,
            n_members,
            gpus: here.iter().map(|it| Arc::clone(&it.1)).collect(),
            communicators: here.iter().map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            others: Arc::clone(others),
            has_failed: Cell::new(false),
        };
        let what = format!("connecting {:?}", clique.gpus);
        clique.start_group(&what)?;
        let places = here.iter().zip(&clique.communicators);
        let begun = places.map(|((number, gpu), place)| {
            gpu.make_current()?;
            Ok(clique.join(id, *number, place))
        });
        let begun: Result<Vec<Outcome>, Error> = begun.collect();
        let ended = clique.end_group();
        let begun = begun?.into_iter().chain([ended]);
        let concluded = clique.conclude(&what, begun);
        let restored = restore(&clique.gpus);
        concluded.and(restored).map(|()| clique)
    }

    /// Begins to make the communicator of a member, whose GPU is the current one.
    fn join(&self, id: &Id, number: usize, place: &AtomicPtr<c_void>) -> Outcome {
        let count = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let (n_members, number) = (count(self.n_members), count(number));
        match self.nccl.non_blocking {
            // SAFETY: the place stays until the communicator is ended, in `drop`.
            Some(calls) => unsafe {
                (calls.join)(place.as_ptr(), n_members, id.raw(), number, &Settings::NON_BLOCKING)
            },
            // SAFETY: as above.
            None => unsafe { (self.nccl.join)(place.as_ptr(), n_members, id.raw(), number) },
        }
    }

    /// Each receives, element by element, the combination of what all give: `n_elements`.
    ///
    /// # Safety
    /// For each member there are as many elements at both addresses, of its GPU, when its stream comes to the collective, and until it is done nobody else
    /// uses them.
    pub(crate) unsafe fn all_reduce(
        &self,
        members: &[Member<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe {
            self.reduce("all-reduce", self.nccl.all_reduce, members, n_elements, dtype, combine)
        }
    }

    /// Each receives what all give, one after another: `n_elements` from each.
    ///
    /// # Safety
    /// As for [`Self::all_reduce`], with room for as many times the elements as there are members at the receiving end.
    pub(crate) unsafe fn all_gather(
        &self,
        members: &[Member<'_>],
        n_elements: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let dtype = type_number(dtype);
        self.together("all-gather", members, &|member, communicator, stream| {
            let (send, receive) = (pointer(member.send), pointer(member.receive));
            // SAFETY: required of the caller.
            unsafe {
                (self.nccl.all_gather)(send, receive, n_elements, dtype, communicator, stream)
            }
        })
    }

    /// Each receives its stretch, of `n_elements`, of the combination of what all give.
    ///
    /// # Safety
    /// As for [`Self::all_reduce`], with as many times the elements as there are members at the giving end.
    pub(crate) unsafe fn reduce_scatter(
        &self,
        members: &[Member<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        unsafe {
            self.reduce(
                "reduce-scatter",
                self.nccl.reduce_scatter,
                members,
                n_elements,
                dtype,
                combine,
            )
        }
    }

    /// Calls one of the two functions that combine.
    ///
    /// # Safety
    /// As the function asks for.
    unsafe fn reduce(
        &self,
        what: &str,
        function: Reduce,
        members: &[Member<'_>],
        n_elements: usize,
        dtype: DType,
        combine: Combine,
    ) -> Result<(), Error> {
        let (dtype, combine) = (type_number(dtype), operation_number(combine));
        self.together(what, members, &|member, communicator, stream| {
            let (send, receive) = (pointer(member.send), pointer(member.receive));
            // SAFETY: required of the caller.
            unsafe { function(send, receive, n_elements, dtype, combine, communicator, stream) }
        })
    }

    /// Each receives its stretch of what each gives, in the order of the members: `n_elements` from each to each.
    ///
    /// # Safety
    /// As for [`Self::all_reduce`], with as many times the elements as there are members at both ends, which do not overlap.
    pub(crate) unsafe fn all_to_all(
        &self,
        members: &[Member<'_>],
        n_elements: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let n_bytes = (n_elements * dtype.bytes()) as u64;
        let (dtype, n_members) = (type_number(dtype), self.n_members);
        self.together("all-to-all", members, &|member, communicator, stream| {
            let peers = (0..n_members as u64).zip(0..).map(|(peer, number): (u64, c_int)| {
                let (send, receive) = (
                    pointer(member.send + peer * n_bytes),
                    pointer(member.receive + peer * n_bytes),
                );
                // SAFETY: required of the caller.
                let sent = unsafe {
                    (self.nccl.send)(send, n_elements, dtype, number, communicator, stream)
                };
                if ![0, IN_PROGRESS].contains(&sent) {
                    return sent;
                }
                // SAFETY: required of the caller.
                unsafe {
                    (self.nccl.receive)(receive, n_elements, dtype, number, communicator, stream)
                }
            });
            outcome_of(peers)
        })
    }

    /// Whether all members still work, as far as NCCL knows.
    ///
    /// # Errors
    /// What went wrong in a collective that was queued before.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.is_busy().map(|_| ())
    }

    /// Ends the communicators as those are ended whose work is done in all processes. What does not work is left to the end of the clique, which aborts it.
    pub(crate) fn leave(&mut self) {
        if !self.has_failed.get() && self.check().is_ok() && self.finalize().is_ok() {
            self.end(self.nccl.destroy);
        }
    }

    /// Ends all communicators that are left.
    fn end(&mut self, end: unsafe extern "C" fn(Communicator) -> Outcome) {
        let left =
            self.communicators.iter_mut().map(|it| mem::replace(it.get_mut(), ptr::null_mut()));
        let left: Vec<Communicator> = left.filter(|it| !it.is_null()).collect();
        for communicator in &left {
            // SAFETY: made in `new`; whatever NCCL says of it, it is not used again.
            let _refused = unsafe { end(*communicator) };
        }
        if !left.is_empty() {
            // Without a context that can be used there is nothing left to do.
            let _refused = restore(&self.gpus);
        }
    }

    /// The communicators that are made, or in the making.
    fn communicators(&self) -> impl Iterator<Item = (&Arc<Gpu>, Communicator)> {
        let all = self.communicators.iter().map(|it| it.load(Ordering::Acquire));
        self.gpus.iter().zip(all).filter(|it| !it.1.is_null())
    }

    /// Whether NCCL works on anything in the background, such as the members' ways to each other.
    fn is_busy(&self) -> Result<bool, Error> {
        let mut is_busy = false;
        for (gpu, communicator) in self.communicators() {
            let mut found = 0;
            // SAFETY: the communicator is alive, and the result is a place of this function.
            let asked = unsafe { (self.nccl.async_error)(communicator, &mut found) };
            match if asked == 0 { found } else { asked } {
                0 => {}
                IN_PROGRESS => is_busy = true,
                outcome => {
                    return Err(self.fault(&format!("communication of {gpu:?}"), outcome));
                }
            }
        }
        Ok(is_busy)
    }

    /// Makes one call for each member here, all as one. They are queued when this returns.
    fn together(&self, what: &str, members: &[Member<'_>], call: Call<'_>) -> Result<(), Error> {
        if members.len() != self.gpus.len() {
            let (expected, found) = (self.gpus.len(), members.len());
            let message = format!("{what}: expected {expected} members, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let streams: Vec<_> = members.iter().map(|it| it.stream.raw()).collect::<Result<_, _>>()?;
        self.start_group(what)?;
        let members = members.iter().zip(self.communicators()).zip(streams);
        let called = members.map(|((&member, (_, communicator)), stream)| {
            call(member, communicator, stream.cast())
        });
        let called = outcome_of(called);
        let outcomes = [called, self.end_group()].into_iter();
        let concluded = self.conclude(&format!("{what} among {:?}", self.gpus), outcomes);
        let restored = restore(&self.gpus);
        concluded.and(restored)
    }

    fn start_group(&self, what: &str) -> Result<(), Error> {
        // SAFETY: whoever starts a group ends it, whatever happens within.
        match unsafe { (self.nccl.group_start)() } {
            0 => Ok(()),
            outcome => Err(self.fault(what, outcome)),
        }
    }

    fn end_group(&self) -> Outcome {
        // SAFETY: a group was started.
        unsafe { (self.nccl.group_end)() }
    }

    /// Looks at the outcomes of a group of calls, and waits until NCCL has done in the background what belongs to them. It may wait for other processes there: before, nothing may be
    /// queued behind the calls.
    fn conclude(&self, what: &str, outcomes: impl Iterator<Item = Outcome>) -> Result<(), Error> {
        match outcome_of(outcomes) {
            0 => Ok(()),
            IN_PROGRESS => self.settle(Duration::MAX),
            outcome => Err(self.fault(what, outcome)),
        }
    }

    /// Waits until nothing goes on in the background, for this long at most.
    fn settle(&self, at_most: Duration) -> Result<(), Error> {
        let started = Instant::now();
        while self.is_busy().map_err(|error| self.others.reason(error))? {
            self.others.check(started).inspect_err(|_| self.has_failed.set(true))?;
            if started.elapsed() > at_most {
                let message = format!(
                    "expected that {:?} stop within {at_most:?}, found that they do not",
                    self.gpus
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Lets the communicators stop; those of other processes may have to as well.
    fn finalize(&self) -> Result<(), Error> {
        let Some(calls) = self.nccl.non_blocking else { return Ok(()) };
        let what = "the end of communication";
        // As one, since the members of one machine may wait for each other.
        self.start_group(what)?;
        // SAFETY: the communicator is alive.
        let begun = self.communicators().map(|(_, it)| unsafe { (calls.finalize)(it) });
        let begun = outcome_of(begun);
        match outcome_of([begun, self.end_group()].into_iter()) {
            0 | IN_PROGRESS => self.settle(LEAVING_TAKES),
            outcome => Err(self.fault(what, outcome)),
        }
    }

    fn fault(&self, what: &str, outcome: Outcome) -> Error {
        self.has_failed.set(true);
        let message = format!("{what}: NCCL: {}", self.nccl.explain(outcome));
        Error::new(ErrorKind::Device, message)
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        // Communicators whose peers have failed would wait for them for ever if they were not aborted.
        self.end(self.nccl.abort);
    }
}

/// NCCL makes the contexts current that it needs: what this thread believes to be current must be so again.
fn restore(gpus: &[Arc<Gpu>]) -> Result<(), Error> {
    gpus.last().map_or(Ok(()), |it| it.make_current())
}

/// The outcome of several calls: the first failure, else whether anything goes on in the background. After a failure none is made.
fn outcome_of(mut outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let mut all = 0;
    let is_failure = |it: &Outcome| ![0, IN_PROGRESS].contains(it);
    outcomes.by_ref().inspect(|it| all = all.max(*it)).find(is_failure).unwrap_or(all)
}

fn pointer(address: u64) -> *mut c_void {
    address as *mut c_void
}

#[cfg(test)]
mod tests;
