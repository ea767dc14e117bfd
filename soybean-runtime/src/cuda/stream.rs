//! Streams, events and graphs.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use super::{
    capture_lock::capturing,
    gpu::{Gpu, Version},
};
use crate::{Error, ErrorKind};

/// A CUDA stream.
pub(crate) struct Stream {
    pub(crate) gpu: Arc<Gpu>,
    raw: sys::CUstream,
}

/// Scheduling priority of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Normal,
    High,
}

// SAFETY: a stream may be used from any thread that makes its context current, as every call here
// does.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver synchronizes calls of several threads.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a non-blocking stream.
    pub(crate) fn new(gpu: &Arc<Gpu>, priority: Priority) -> Result<Self, Error> {
        gpu.bind()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let made = match priority {
            Priority::Normal => result::stream::create(kind),
            Priority::High => result::stream::get_priority_range()
                .and_then(|(_, greatest)| result::stream::create_with_priority(kind, greatest)),
        };
        let raw = made.map_err(|error| gpu.error("making a stream", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// Returns the driver's handle and makes its context current.
    pub(crate) fn raw(&self) -> Result<sys::CUstream, Error> {
        self.gpu.bind()?;
        Ok(self.raw)
    }

    /// Makes later work wait for the last recording of an event, which may belong to another GPU.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), Error> {
        let raw = self.raw()?;
        // SAFETY: both handles are alive.
        unsafe {
            result::stream::wait_event(
                raw,
                event.raw,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
        .map_err(|error| self.gpu.error("waiting for an event", error))
    }

    /// Waits on the host until all work completes.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        let raw = self.raw()?;
        // SAFETY: the handle is alive.
        unsafe { result::stream::synchronize(raw) }
            .map_err(|error| self.gpu.error("waiting for a stream", error))
    }

    /// Returns true if all work is complete.
    ///
    /// # Errors
    /// The first error that the driver reports for the stream's GPU.
    pub(crate) fn is_idle(&self) -> Result<bool, Error> {
        match self.query()? {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            error => Err(self.gpu.error("running a step", DriverError(error))),
        }
    }

    /// Returns the error of work that has failed on the stream's GPU. None for a stream whose work
    /// is being captured.
    pub(crate) fn failure(&self) -> Option<Error> {
        match self.query().ok()? {
            sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => None,
            _ => self.is_idle().err(),
        }
    }

    /// Asks the driver for the state of the work.
    fn query(&self) -> Result<sys::CUresult, Error> {
        let raw = self.raw()?;
        // SAFETY: the handle is alive.
        Ok(unsafe { sys::cuStreamQuery(raw) })
    }

    /// Makes a graph of the work that `queue` queues on this stream, and on streams that wait for
    /// it. The work does not run.
    pub(crate) fn capture(
        &self,
        queue: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Graph, Error> {
        let _alone = capturing();
        let raw = self.raw()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        unsafe { result::stream::begin_capture(raw, mode) }
            .map_err(|error| self.gpu.error("beginning to capture a step", error))?;
        let queued = queue();
        // The capture must end even after an error.
        // SAFETY: the handle is alive.
        let captured = unsafe { result::stream::end_capture(raw) };
        queued?;
        let graph = captured.map_err(|error| self.gpu.error("capturing a step", error))?;
        // SAFETY: the driver has just made the graph.
        let made = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above; the executable graph is independent of it.
        let _refused = unsafe { result::graph::destroy(graph) };
        let raw = made.map_err(|error| self.gpu.error("making a graph of a step", error))?;
        Ok(Graph { gpu: Arc::clone(&self.gpu), raw })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(raw) = self.raw() else { return };
        // SAFETY: made in `new`. After a fatal error the driver refuses, and there is nothing left
        // to destroy.
        let _refused = unsafe { result::stream::destroy(raw) };
    }
}

/// First driver with `cuEventElapsedTime_v2`. Calling it on older drivers would abort the process.
const TIMING_DRIVER: i32 = 12_080;

/// A CUDA event.
pub(crate) struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}
// SAFETY: as for streams.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event without timing.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// Creates an event with timing.
    pub(crate) fn with_time(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        if gpu.driver_version < TIMING_DRIVER {
            let found = Version(gpu.driver_version);
            let message = format!(
                "a trace: expected a driver for CUDA {}, found {found}",
                Version(TIMING_DRIVER)
            );
            return Err(Error::new(ErrorKind::Device, message));
        }
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(gpu: &Arc<Gpu>, flags: sys::CUevent_flags) -> Result<Self, Error> {
        gpu.bind()?;
        let raw =
            result::event::create(flags).map_err(|error| gpu.error("making an event", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// Records the event behind all work so far on a stream of the same GPU.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are alive.
        unsafe { result::event::record(self.raw, raw) }
            .map_err(|error| self.gpu.error("recording an event", error))
    }

    /// Returns true if the recorded work is complete.
    pub(crate) fn is_complete(&self) -> Result<bool, Error> {
        self.gpu.bind()?;
        // SAFETY: the handle is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(self.gpu.error("running a step", error)),
        }
    }

    /// Returns the milliseconds since an earlier event. Both must be complete and have timing.
    pub(crate) fn milliseconds_since(&self, earlier: &Self) -> Result<f32, Error> {
        self.gpu.bind()?;
        // SAFETY: both handles are alive.
        unsafe { result::event::elapsed(earlier.raw, self.raw) }
            .map_err(|error| self.gpu.error("reading the time", error))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made in `with`. After a fatal error the driver refuses, and there is nothing
            // left to destroy.
            let _refused = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// An executable graph of a step on all GPUs.
pub(crate) struct Graph {
    gpu: Arc<Gpu>,
    raw: sys::CUgraphExec,
}

// SAFETY: as for streams; one thread at a time uses it.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues the graph on a stream.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are valid; the owner of the graph keeps the captured memory
        // allocated.
        unsafe { result::graph::launch(self.raw, raw) }
            .map_err(|error| self.gpu.error("starting a step", error))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // This call waits for nothing, so it is made for a lost GPU, too: NCCL aborts a
        // communicator only after the graphs with its operations are gone.
        let _lost = self.gpu.bind();
        // SAFETY: made in `capture`. After a fatal error the driver refuses, and there is
        // nothing left to destroy.
        let _refused = unsafe { result::graph::exec_destroy(self.raw) };
    }
}
