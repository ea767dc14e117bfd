//! Collectives of several GPUs by NCCL, all called by one thread.
#![expect(unsafe_code, reason = "NCCL is a C library")]

mod binding;

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    sync::Arc,
};

use soybean_plan::{Combine, DType};

pub(crate) use self::binding::Binding;
use self::binding::{Communicator, IN_PROGRESS, Outcome, Reduce};
use super::{gpu::Gpu, libraries::find, stream::Stream};
use crate::{Error, ErrorKind};

/// GPUs that communicate with each other, each different.
pub(crate) struct Clique {
    nccl: &'static Binding,
    gpus: Vec<Arc<Gpu>>,
    communicators: Vec<Communicator>,
    /// Whether anything has failed: then the GPUs may wait for each other, and are not waited for.
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

/// One call for one member: the communicator and the stream are the member's.
type Call<'a> = &'a dyn Fn(usize, Member<'_>, Communicator, *mut c_void) -> Outcome;

impl Clique {
    /// Connects these GPUs; their places in the list are those of the members in all collectives.
    ///
    /// # Errors
    /// If NCCL is missing or cannot connect them, as where two are the same.
    pub(crate) fn new(gpus: &[Arc<Gpu>]) -> Result<Self, Error> {
        let nccl = find().nccl()?;
        let number = |it: &Arc<Gpu>| c_int::try_from(it.ordinal).unwrap_or(c_int::MAX);
        let devices: Vec<c_int> = gpus.iter().map(number).collect();
        let count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        let mut communicators = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: there are as many devices, and as much room for communicators, as it is told.
        let made = unsafe { (nccl.init_all)(communicators.as_mut_ptr(), count, devices.as_ptr()) };
        let restored = restore(gpus);
        if made != 0 {
            let message = format!("connecting {gpus:?}: {}", nccl.explain(made));
            return Err(Error::new(ErrorKind::Device, message));
        }
        let has_failed = Cell::new(false);
        let clique = Self { nccl, gpus: gpus.to_vec(), communicators, has_failed };
        restored.map(|()| clique)
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
        self.together("all-gather", members, &|_, member, communicator, stream| {
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
        self.together(what, members, &|_, member, communicator, stream| {
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
        let (dtype, n_members) = (type_number(dtype), self.gpus.len());
        self.together("all-to-all", members, &|_, member, communicator, stream| {
            let peers = (0..n_members as u64).zip(0..).map(|(peer, number): (u64, c_int)| {
                let (send, receive) = (
                    pointer(member.send + peer * n_bytes),
                    pointer(member.receive + peer * n_bytes),
                );
                // SAFETY: required of the caller.
                let sent = unsafe {
                    (self.nccl.send)(send, n_elements, dtype, number, communicator, stream)
                };
                if sent != 0 {
                    return sent;
                }
                // SAFETY: required of the caller.
                unsafe {
                    (self.nccl.receive)(receive, n_elements, dtype, number, communicator, stream)
                }
            });
            first_failure(peers)
        })
    }

    /// Whether all members still work, as far as NCCL knows.
    ///
    /// # Errors
    /// What went wrong in a collective that was queued before.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (gpu, &communicator) in self.gpus.iter().zip(&self.communicators) {
            let mut found = 0;
            // SAFETY: the communicator is alive, and the result is a place of this function.
            let asked = unsafe { (self.nccl.async_error)(communicator, &mut found) };
            let outcome = if asked == 0 { found } else { asked };
            if outcome != 0 && outcome != IN_PROGRESS {
                return Err(self.fault(&format!("communication of {gpu:?}"), outcome));
            }
        }
        Ok(())
    }

    /// Lets the clique be aborted when it is dropped.
    pub(crate) fn give_up(&self) {
        self.has_failed.set(true);
    }

    /// Makes one call for each member, all as one.
    fn together(&self, what: &str, members: &[Member<'_>], call: Call<'_>) -> Result<(), Error> {
        if members.len() != self.gpus.len() {
            let (expected, found) = (self.gpus.len(), members.len());
            let message = format!("{what}: expected {expected} members, found {found}");
            return Err(Error::new(ErrorKind::Program, message));
        }
        let streams: Vec<_> = members.iter().map(|it| it.stream.raw()).collect::<Result<_, _>>()?;
        // SAFETY: the group is ended below, whatever happens within.
        let started = unsafe { (self.nccl.group_start)() };
        if started != 0 {
            return Err(self.fault(what, started));
        }
        let members = members.iter().zip(&self.communicators).zip(streams).enumerate();
        let called = first_failure(members.map(|(place, ((&member, &communicator), stream))| {
            call(place, member, communicator, stream.cast())
        }));
        // SAFETY: the group is begun above.
        let ended = unsafe { (self.nccl.group_end)() };
        let restored = restore(&self.gpus);
        match first_failure([called, ended].into_iter()) {
            0 => restored,
            outcome => Err(self.fault(what, outcome)),
        }
    }

    fn fault(&self, what: &str, outcome: Outcome) -> Error {
        self.has_failed.set(true);
        let message = format!("{what} among {:?}: NCCL: {}", self.gpus, self.nccl.explain(outcome));
        Error::new(ErrorKind::Device, message)
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        // A communicator whose peers have failed would wait for them for ever if it were not aborted.
        let end = if self.has_failed.get() || self.check().is_err() {
            self.nccl.abort
        } else {
            self.nccl.destroy
        };
        for &communicator in &self.communicators {
            // SAFETY: made in `new`; whatever NCCL says of it, it is not used again.
            let _refused = unsafe { end(communicator) };
        }
        // Without a context that can be used there is nothing left to do.
        let _refused = restore(&self.gpus);
    }
}

/// NCCL makes the contexts current that it needs: what this thread believes to be current must be so again.
fn restore(gpus: &[Arc<Gpu>]) -> Result<(), Error> {
    gpus.last().map_or(Ok(()), |it| it.make_current())
}

fn first_failure(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let mut outcomes = outcomes;
    outcomes.find(|it| *it != 0).unwrap_or(0)
}

fn pointer(address: u64) -> *mut c_void {
    address as *mut c_void
}

/// The number of an element type in NCCL's header.
fn type_number(dtype: DType) -> c_int {
    match dtype {
        DType::I32 => 2,
        DType::F32 => 7,
        DType::Bf16 => 9,
    }
}

/// The number of an operation in NCCL's header.
fn operation_number(combine: Combine) -> c_int {
    match combine {
        Combine::Sum => 0,
        Combine::Max => 2,
    }
}

#[cfg(test)]
mod tests;
