//! The calls of MPI that are used, with their errors.
#![expect(unsafe_code, reason = "MPI is a library of C")]

use std::{
    ffi::{c_char, c_int},
    mem::MaybeUninit,
    ptr,
};

use mpi::ffi::{self, MPI_Comm, MPI_Datatype, MPI_Request, MPI_Status};

use crate::{Error, ErrorKind};

/// A communicator: its messages reach no other.
#[derive(Clone, Copy)]
pub(super) struct MpiCommunicator(MPI_Comm);

// SAFETY: MPI is asked for calls from any thread before there is a communicator.
unsafe impl Send for MpiCommunicator {}
// SAFETY: as above.
unsafe impl Sync for MpiCommunicator {}

/// Messages and collectives that are under way.
#[derive(Default)]
pub(super) struct Requests(Vec<MPI_Request>);

// SAFETY: as above.
unsafe impl Send for Requests {}

/// Runs a call; its error says what was tried.
fn call(what: &str, run: impl FnOnce() -> c_int) -> Result<(), Error> {
    let code = run();
    // MPI_SUCCESS is 0 by the standard.
    if code == 0 {
        return Ok(());
    }
    // MPI_MAX_ERROR_STRING is 256 with Open MPI, and 512 with MPICH.
    let (mut text, mut length) = ([0_u8; 512], 0);
    let start = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: there is room for the longest text.
    unsafe { ffi::MPI_Error_string(code, start, &raw mut length) };
    let text = &text[..usize::try_from(length).unwrap_or(0).min(512)];
    let text = String::from_utf8_lossy(text);
    Err(Error::new(ErrorKind::Process, format!("{what} by MPI: {text}")))
}

fn number(n: usize) -> Result<c_int, Error> {
    let fault =
        |_| Error::new(ErrorKind::Program, format!("expected a number of 31 bits, found {n}"));
    c_int::try_from(n).map_err(fault)
}

/// The type of all messages.
fn bytes() -> MPI_Datatype {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_UINT8_T }
}

impl MpiCommunicator {
    /// All processes.
    pub(super) fn world() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    /// A communicator that is not made yet.
    pub(super) fn none() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_COMM_NULL })
    }

    /// The number of this process, and how many there are.
    pub(super) fn rank_and_size(self) -> Result<(usize, usize), Error> {
        let (mut own, mut all) = (0, 0);
        // SAFETY: writes one number.
        call("counting processes", || unsafe { ffi::MPI_Comm_rank(self.0, &raw mut own) })?;
        // SAFETY: as above.
        call("counting processes", || unsafe { ffi::MPI_Comm_size(self.0, &raw mut all) })?;
        Ok((usize::try_from(own).unwrap_or(0), usize::try_from(all).unwrap_or(1)))
    }

    /// Errors of calls come back as errors, instead of ending all processes.
    pub(super) fn with_returned_errors(self) -> Result<Self, Error> {
        // SAFETY: a constant of the library.
        let handler = unsafe { ffi::RSMPI_ERRORS_RETURN };
        // SAFETY: both are valid.
        let run = || unsafe { ffi::MPI_Comm_set_errhandler(self.0, handler) };
        call("a handler of errors", run)?;
        Ok(self)
    }

    /// The same processes, once extra; all of them take part.
    pub(super) fn duplicate(self) -> Result<Self, Error> {
        let mut new = Self::none();
        // SAFETY: writes one handle.
        call("a channel", || unsafe { ffi::MPI_Comm_dup(self.0, &raw mut new.0) })?;
        new.with_returned_errors()
    }

    /// Those processes that are on this one's machine; all take part.
    pub(super) fn split_by_machine(self) -> Result<Self, Error> {
        let mut new = Self::none();
        // SAFETY: a constant of the library.
        let shared = unsafe { ffi::RSMPI_COMM_TYPE_SHARED };
        // SAFETY: as above.
        let info = unsafe { ffi::RSMPI_INFO_NULL };
        // SAFETY: writes one handle.
        let run = || unsafe { ffi::MPI_Comm_split_type(self.0, shared, 0, info, &raw mut new.0) };
        call("the processes of this machine", run)?;
        new.with_returned_errors()
    }

    /// Begins to make a further channel of the same processes, at `new`.
    ///
    /// # Safety
    /// Nobody moves or reads `new` before the request is done.
    pub(super) unsafe fn begin_duplicate(
        self,
        new: &mut Self,
        requests: &mut Requests,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        requests.begin("a channel", |it| unsafe { ffi::MPI_Comm_idup(self.0, &raw mut new.0, it) })
    }

    /// Begins to send.
    ///
    /// # Safety
    /// The memory stays, and nobody writes there, until the request is done.
    pub(super) unsafe fn begin_send(
        self,
        (process, tag): (usize, usize),
        from: *const u8,
        n_bytes: usize,
        requests: &mut Requests,
    ) -> Result<(), Error> {
        let (process, tag, n_bytes) = (number(process)?, number(tag)?, number(n_bytes)?);
        // SAFETY: required of the caller.
        requests.begin("sending", |it| unsafe {
            ffi::MPI_Isend(from.cast(), n_bytes, bytes(), process, tag, self.0, it)
        })
    }

    /// Begins to receive.
    ///
    /// # Safety
    /// The memory stays, and nobody else uses it, until the request is done.
    pub(super) unsafe fn begin_receive(
        self,
        (process, tag): (usize, usize),
        to: *mut u8,
        n_bytes: usize,
        requests: &mut Requests,
    ) -> Result<(), Error> {
        let (process, tag, n_bytes) = (number(process)?, number(tag)?, number(n_bytes)?);
        // SAFETY: required of the caller.
        requests.begin("receiving", |it| unsafe {
            ffi::MPI_Irecv(to.cast(), n_bytes, bytes(), process, tag, self.0, it)
        })
    }

    /// Begins to hand exchange what each process has, all alike in length.
    ///
    /// # Safety
    /// The memory stays until the request is done; nobody writes to `from` or uses `to`, which is as long for each process.
    pub(super) unsafe fn begin_all_gather(
        self,
        from: &[u8],
        to: &mut [u8],
        requests: &mut Requests,
    ) -> Result<(), Error> {
        let (n_bytes, from, to) = (number(from.len())?, from.as_ptr(), to.as_mut_ptr());
        // SAFETY: required of the caller.
        requests.begin("all-gather", |it| unsafe {
            ffi::MPI_Iallgather(
                from.cast(),
                n_bytes,
                bytes(),
                to.cast(),
                n_bytes,
                bytes(),
                self.0,
                it,
            )
        })
    }

    /// Begins to wait for all processes.
    pub(super) fn begin_barrier(self, requests: &mut Requests) -> Result<(), Error> {
        // SAFETY: writes one handle.
        requests.begin("meeting", |it| unsafe { ffi::MPI_Ibarrier(self.0, it) })
    }

    /// The next message from anyone, if one has come: who sent it, and how many bytes of `to` it has; longer ones are an error.
    pub(super) fn try_receive(self, to: &mut [u8]) -> Result<Option<(usize, usize)>, Error> {
        let (mut has_come, mut status) = (0, MaybeUninit::<MPI_Status>::uninit());
        // SAFETY: a constant of the library.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        // SAFETY: as above.
        let anyone = unsafe { ffi::RSMPI_ANY_SOURCE };
        // SAFETY: as above.
        let any_tag = unsafe { ffi::RSMPI_ANY_TAG };
        let (come, from) = (&raw mut has_come, status.as_mut_ptr());
        // SAFETY: writes flag, handle and status.
        let run =
            || unsafe { ffi::MPI_Improbe(anyone, any_tag, self.0, come, &raw mut message, from) };
        call("looking for messages", run)?;
        if has_come == 0 {
            return Ok(None);
        }
        let n_bytes = number(to.len())?;
        let to = to.as_mut_ptr().cast();
        // SAFETY: the memory has this many bytes.
        let run = || unsafe { ffi::MPI_Mrecv(to, n_bytes, bytes(), &raw mut message, from) };
        call("receiving", run)?;
        let mut length = 0;
        // SAFETY: the status was written.
        let run = || unsafe { ffi::MPI_Get_count(from, bytes(), &raw mut length) };
        call("the length of a message", run)?;
        // SAFETY: as above.
        let process = unsafe { status.assume_init() }.MPI_SOURCE;
        Ok(Some((usize::try_from(process).unwrap_or(0), usize::try_from(length).unwrap_or(0))))
    }

    /// Ends all processes at once.
    pub(super) fn abort(self) {
        // SAFETY: no memory is involved.
        unsafe { ffi::MPI_Abort(self.0, 1) };
    }
}

impl Requests {
    /// Whether nothing is under way.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn begin(
        &mut self,
        what: &str,
        run: impl FnOnce(*mut MPI_Request) -> c_int,
    ) -> Result<(), Error> {
        // SAFETY: a constant of the library.
        self.0.push(unsafe { ffi::RSMPI_REQUEST_NULL });
        let request = self.0.last_mut().map_or(ptr::null_mut(), |it| &raw mut *it);
        let begun = call(what, || run(request));
        if begun.is_err() {
            self.0.pop();
        }
        begun
    }

    /// Whether all is done; it is forgotten then.
    pub(super) fn is_done(&mut self) -> Result<bool, Error> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let (n_requests, mut is_done) = (number(self.0.len())?, 0);
        let requests = self.0.as_mut_ptr();
        // SAFETY: a constant of the library.
        let statuses = unsafe { ffi::RSMPI_STATUSES_IGNORE };
        // SAFETY: there are as many requests.
        let run = || unsafe { ffi::MPI_Testall(n_requests, requests, &raw mut is_done, statuses) };
        call("messages", run)?;
        if is_done != 0 {
            self.0.clear();
        }
        Ok(is_done != 0)
    }
}
