//! Streams, events, and whole steps as graphs.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use super::gpu::{Gpu, Version};
use crate::{Error, ErrorKind};

/// A queue of work on one GPU.
pub(crate) struct Stream {
    pub(crate) gpu: Arc<Gpu>,
    raw: sys::CUstream,
}

/// How soon a stream's work runs when that of several could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Normal,
    High,
}

// SAFETY: streams may be used from any thread that makes their context current, which every call here does.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream that does not wait for others.
    pub(crate) fn new(gpu: &Arc<Gpu>, priority: Priority) -> Result<Self, Error> {
        gpu.bind()?;
        let kind = result::stream::StreamKind::NonBlocking;
        let made = match priority {
            Priority::Normal => result::stream::create(kind),
            Priority::High => result::stream::get_priority_range()
                .and_then(|(_, greatest)| result::stream::create_with_priority(kind, greatest)),
        };
        let raw = made.map_err(|error| gpu.fault("making a stream", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// The driver's handle, with the GPU's context made current.
    pub(crate) fn raw(&self) -> Result<sys::CUstream, Error> {
        self.gpu.bind()?;
        Ok(self.raw)
    }

    /// Lets later work wait until the event has happened as it was last recorded; it may be another GPU's.
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
        .map_err(|error| self.gpu.fault("waiting for an event", error))
    }

    /// Waits on the host until all work is done.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        let raw = self.raw()?;
        // SAFETY: the handle is alive.
        unsafe { result::stream::synchronize(raw) }
            .map_err(|error| self.gpu.fault("waiting for a stream", error))
    }

    /// Whether all has gone well so far on this stream's GPU, as far as the driver knows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let raw = self.raw()?;
        // SAFETY: the handle is alive.
        match unsafe { sys::cuStreamQuery(raw) } {
            sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            error => Err(self.gpu.fault("running a step", DriverError(error))),
        }
    }

    /// From here on work on this stream, and on streams that wait for it, is collected and not run.
    pub(crate) fn begin_capture(&self) -> Result<(), Error> {
        let raw = self.raw()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is alive.
        unsafe { result::stream::begin_capture(raw, mode) }
            .map_err(|error| self.gpu.fault("beginning to capture a step", error))
    }

    /// The work collected since [`Self::begin_capture`], ready to run.
    pub(crate) fn end_capture(&self) -> Result<Graph, Error> {
        let raw = self.raw()?;
        // SAFETY: the handle is alive.
        let graph = unsafe { result::stream::end_capture(raw) }
            .map_err(|error| self.gpu.fault("capturing a step", error))?;
        // SAFETY: the driver has just made the graph.
        let made = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above; what was made of it lives on its own.
        let _refused = unsafe { result::graph::destroy(graph) };
        let raw = made.map_err(|error| self.gpu.fault("making a graph of a step", error))?;
        Ok(Graph { gpu: Arc::clone(&self.gpu), raw })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(raw) = self.raw() else { return };
        // SAFETY: made in `new`. After a fatal error the driver refuses, and there is nothing left to destroy.
        let _refused = unsafe { result::stream::destroy(raw) };
    }
}

/// The first driver with the call that reads times: older ones lack it, and calling it would end the process.
const TIMING_DRIVER: i32 = 12_080;

/// A moment in a stream.
pub(crate) struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for Event {}

impl Event {
    /// An event that orders work and takes no time.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// An event that also keeps the time.
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
            result::event::create(flags).map_err(|error| gpu.fault("making an event", error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    /// The moment becomes that at which all work so far on the stream, which is of the same GPU, is done.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are alive.
        unsafe { result::event::record(self.raw, raw) }
            .map_err(|error| self.gpu.fault("recording an event", error))
    }

    /// Whether the moment has passed.
    pub(crate) fn has_happened(&self) -> Result<bool, Error> {
        self.gpu.bind()?;
        // SAFETY: the handle is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(self.gpu.fault("running a step", error)),
        }
    }

    /// The milliseconds from an earlier moment to this one; both have happened and keep the time.
    pub(crate) fn milliseconds_since(&self, earlier: &Self) -> Result<f32, Error> {
        self.gpu.bind()?;
        // SAFETY: both handles are alive.
        unsafe { result::event::elapsed(earlier.raw, self.raw) }
            .map_err(|error| self.gpu.fault("reading the time", error))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made in `with`. After a fatal error the driver refuses, and there is nothing left to destroy.
            let _refused = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// A whole step on all GPUs, which runs with one call.
pub(crate) struct Graph {
    gpu: Arc<Gpu>,
    raw: sys::CUgraphExec,
}

// SAFETY: as for streams; one thread at a time uses it.
unsafe impl Send for Graph {}

impl Graph {
    /// Runs the step after all work so far on the stream.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: both handles are alive; whoever captured the step keeps its memory.
        unsafe { result::graph::launch(self.raw, raw) }
            .map_err(|error| self.gpu.fault("starting a step", error))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made in `end_capture`. After a fatal error the driver refuses, and there is nothing left to destroy.
            let _refused = unsafe { result::graph::exec_destroy(self.raw) };
        }
    }
}
