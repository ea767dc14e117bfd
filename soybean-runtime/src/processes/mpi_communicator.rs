//! Wrappers of the MPI functions in use, with errors as values.
#![expect(unsafe_code, reason = "MPI is a C library")]

use std::{
    ffi::{c_char, c_int},
    mem::MaybeUninit,
    ptr,
};

use mpi::ffi::{self, MPI_Comm, MPI_Datatype, MPI_Request, MPI_Status};

use crate::{Error, ErrorKind};

/// An MPI communicator.
#[derive(Clone, Copy)]
pub(super) struct MpiCommunicator(MPI_Comm);

// SAFETY: MPI is initialized for calls from any thread before a communicator exists.
unsafe impl Send for MpiCommunicator {}
// SAFETY: as above.
unsafe impl Sync for MpiCommunicator {}

/// Pending messages and collectives.
#[derive(Default)]
pub(super) struct Requests(Vec<MPI_Request>);

// SAFETY: as above.
unsafe impl Send for Requests {}

/// Runs an MPI function. The error names the operation.
fn call(what: &str, run: impl FnOnce() -> c_int) -> Result<(), Error> {
    let code = run();
    // MPI_SUCCESS is 0 by the standard.
    if code == 0 {
        return Ok(());
    }
    // MPI_MAX_ERROR_STRING is 256 with Open MPI, and 512 with MPICH.
    let (mut text, mut length) = ([0_u8; 512], 0);
    let start = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: the buffer holds the longest text.
    unsafe { ffi::MPI_Error_string(code, start, &raw mut length) };
    let text = &text[..usize::try_from(length).unwrap_or(0).min(512)];
    let text = String::from_utf8_lossy(text);
    Err(Error::new(ErrorKind::Process, format!("{what} by MPI: {text}")))
}

fn number(n: usize) -> Result<c_int, Error> {
    let error =
        |_| Error::new(ErrorKind::Program, format!("expected a number of 31 bits, found {n}"));
    c_int::try_from(n).map_err(error)
}

/// Returns the datatype of all messages.
fn bytes() -> MPI_Datatype {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_UINT8_T }
}

impl MpiCommunicator {
    /// Returns the communicator of all processes.
    pub(super) fn world() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    /// Returns the null communicator.
    pub(super) fn none() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_COMM_NULL })
    }

    /// Returns the rank of this process and the number of processes.
    pub(super) fn rank_and_size(self) -> Result<(usize, usize), Error> {
        let (mut own, mut all) = (0, 0);
        // SAFETY: writes one integer.
        call("querying rank and size", || unsafe { ffi::MPI_Comm_rank(self.0, &raw mut own) })?;
        // SAFETY: as above.
        call("querying rank and size", || unsafe { ffi::MPI_Comm_size(self.0, &raw mut all) })?;
        Ok((usize::try_from(own).unwrap_or(0), usize::try_from(all).unwrap_or(1)))
    }

    /// Makes MPI return errors instead of aborting.
    pub(super) fn with_returned_errors(self) -> Result<Self, Error> {
        // SAFETY: a constant of the library.
        let handler = unsafe { ffi::RSMPI_ERRORS_RETURN };
        // SAFETY: both handles are valid.
        let run = || unsafe { ffi::MPI_Comm_set_errhandler(self.0, handler) };
        call("setting the error handler", run)?;
        Ok(self)
    }

    /// Duplicates the communicator. All its processes take part.
    pub(super) fn duplicate(self) -> Result<Self, Error> {
        let mut new = Self::none();
        // SAFETY: writes one handle.
        call("duplicating a communicator", || unsafe {
            ffi::MPI_Comm_dup(self.0, &raw mut new.0)
        })?;
        new.with_returned_errors()
    }

    /// Returns a communicator of the processes on this machine. All processes take part.
    pub(super) fn split_by_machine(self) -> Result<Self, Error> {
        let mut new = Self::none();
        // SAFETY: a constant of the library.
        let shared = unsafe { ffi::RSMPI_COMM_TYPE_SHARED };
        // SAFETY: as above.
        let info = unsafe { ffi::RSMPI_INFO_NULL };
        // SAFETY: writes one handle.
        let run = || unsafe { ffi::MPI_Comm_split_type(self.0, shared, 0, info, &raw mut new.0) };
        call("splitting a communicator by machine", run)?;
        new.with_returned_errors()
    }

    /// Starts to duplicate the communicator into `new`.
    ///
    /// # Safety
    /// Nothing moves or reads `new` before the request is complete.
    pub(super) unsafe fn begin_duplicate(
        self,
        new: &mut Self,
        requests: &mut Requests,
    ) -> Result<(), Error> {
        // SAFETY: required of the caller.
        requests.begin("duplicating a communicator", |it| unsafe {
            ffi::MPI_Comm_idup(self.0, &raw mut new.0, it)
        })
    }

    /// Starts to send a message.
    ///
    /// # Safety
    /// The memory stays valid and unchanged until the request is complete.
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

    /// Starts to receive a message.
    ///
    /// # Safety
    /// The memory stays valid, and nothing else uses it, until the request is complete.
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

    /// Starts an all-gather of equally many bytes from each process.
    ///
    /// # Safety
    /// Both buffers stay valid until the request is complete. Until then nothing writes to `from`
    /// or uses `to`, which holds the bytes of all processes.
    pub(super) unsafe fn begin_all_gather(
        self,
        from: &[u8],
        to: &mut [u8],
        requests: &mut Requests,
    ) -> Result<(), Error> {
        let (n_bytes, from, to) = (number(from.len())?, from.as_ptr(), to.as_mut_ptr());
        // SAFETY: required of the caller.
        requests.begin("an all-gather", |it| unsafe {
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

    /// Starts a barrier.
    pub(super) fn begin_barrier(self, requests: &mut Requests) -> Result<(), Error> {
        // SAFETY: writes one handle.
        requests.begin("a barrier", |it| unsafe { ffi::MPI_Ibarrier(self.0, it) })
    }

    /// Receives the next message from any process, if one has arrived. Returns its sender and its
    /// length. A message longer than `to` is an error.
    pub(super) fn try_receive(self, to: &mut [u8]) -> Result<Option<(usize, usize)>, Error> {
        let (mut has_come, mut status) = (0, MaybeUninit::<MPI_Status>::uninit());
        // SAFETY: a constant of the library.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        // SAFETY: as above.
        let anyone = unsafe { ffi::RSMPI_ANY_SOURCE };
        // SAFETY: as above.
        let any_tag = unsafe { ffi::RSMPI_ANY_TAG };
        let (come, from) = (&raw mut has_come, status.as_mut_ptr());
        // SAFETY: writes a flag, a handle and a status.
        let run =
            || unsafe { ffi::MPI_Improbe(anyone, any_tag, self.0, come, &raw mut message, from) };
        call("probing for messages", run)?;
        if has_come == 0 {
            return Ok(None);
        }
        let n_bytes = number(to.len())?;
        let to = to.as_mut_ptr().cast();
        // SAFETY: the memory has this many bytes.
        let run = || unsafe { ffi::MPI_Mrecv(to, n_bytes, bytes(), &raw mut message, from) };
        call("receiving", run)?;
        let mut length = 0;
        // SAFETY: the status is initialized.
        let run = || unsafe { ffi::MPI_Get_count(from, bytes(), &raw mut length) };
        call("the length of a message", run)?;
        // SAFETY: as above.
        let process = unsafe { status.assume_init() }.MPI_SOURCE;
        Ok(Some((usize::try_from(process).unwrap_or(0), usize::try_from(length).unwrap_or(0))))
    }

    /// Aborts all processes.
    pub(super) fn abort(self) {
        // SAFETY: no memory is involved.
        unsafe { ffi::MPI_Abort(self.0, 1) };
    }
}

impl Requests {
    /// Returns true if no request is pending.
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

    /// Returns true if all requests are complete, and clears them.
    pub(super) fn is_done(&mut self) -> Result<bool, Error> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let (n_requests, mut is_done) = (number(self.0.len())?, 0);
        let requests = self.0.as_mut_ptr();
        // SAFETY: a constant of the library.
        let statuses = unsafe { ffi::RSMPI_STATUSES_IGNORE };
        // SAFETY: the array holds this many requests.
        let run = || unsafe { ffi::MPI_Testall(n_requests, requests, &raw mut is_done, statuses) };
        call("messages", run)?;
        if is_done != 0 {
            self.0.clear();
        }
        Ok(is_done != 0)
    }
}
