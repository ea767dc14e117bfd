//! Stream capture: work becomes a graph instead of running.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::{self, ThreadId};

use crate::state::{Event, Rendezvous, State, Stream};
use crate::status::{ApiResult, Status};
use crate::work::{Communication, Graph, Job, Node, Task, Work};

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Origin stream, where the capture must end.
    origin: u64,
    nodes: Vec<Node>,
    /// For each stream of the capture, the nodes that its next node depends on.
    ends: BTreeMap<u64, BTreeSet<usize>>,
    is_invalid: bool,
    mode: CaptureMode,
    thread: ThreadId,
}

/// Whose unsafe calls a capture rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureMode {
    AllThreads,
    OwnThread,
    NoThread,
}

/// State of an event that was recorded in a capturing stream.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    capture: u64,
    ends: BTreeSet<usize>,
}

impl State {
    /// Submits a task to a stream, or to the graph that it captures.
    pub(crate) fn submit(&mut self, stream: u64, task: Task) -> ApiResult {
        match self.streams[&stream].capture {
            None => self.enqueue(stream, Work::Task(task)),
            Some(number) => self.capture(number)?.add(&[stream], task, None),
        }
    }

    /// Submits a task to a stream of the current context's device.
    pub(crate) fn submit_here(&mut self, stream: u64, task: Task) -> ApiResult {
        if self.current_device()? != self.streams[&stream].device {
            return Err(Status::INVALID_CONTEXT);
        }
        self.submit(stream, task)
    }

    /// Adds work that starts when this many streams have reached it. Returns its number.
    pub(crate) fn open_rendezvous(
        &mut self,
        communication: Communication,
        n_streams: usize,
        job: Job,
    ) -> u64 {
        let number = self.new_handle();
        communication.submitted();
        let streams = Vec::new();
        self.rendezvous.insert(number, Rendezvous { communication, streams, n_streams, job });
        number
    }

    /// Queues shared work on a stream.
    pub(crate) fn join_rendezvous(&mut self, number: u64, stream: u64) -> ApiResult {
        if let Some(rendezvous) = self.rendezvous.get_mut(&number) {
            rendezvous.streams.push(stream);
        }
        self.enqueue(stream, Work::Rendezvous(number))
    }

    /// Submits work that starts once all streams have reached it, followed by tasks on single
    /// streams.
    pub(crate) fn submit_rendezvous(
        &mut self,
        communication: Communication,
        streams: &[u64],
        job: Job,
        follow: Vec<(u64, Task)>,
    ) -> ApiResult {
        let captures: BTreeSet<Option<u64>> =
            streams.iter().map(|stream| self.streams[stream].capture).collect();
        match captures.into_iter().collect::<Vec<_>>().as_slice() {
            [None] => {
                let rendezvous = self.open_rendezvous(communication, streams.len(), job);
                for &stream in streams {
                    self.join_rendezvous(rendezvous, stream)?;
                }
            }
            &[Some(number)] => {
                let device = self.streams[&streams[0]].device;
                self.capture(number)?.add(streams, Task { device, job }, Some(communication))?;
            }
            _ => return Err(Status::STREAM_CAPTURE_UNSUPPORTED),
        }
        follow.into_iter().try_for_each(|(stream, task)| self.submit(stream, task))
    }

    pub(crate) fn new_event(&mut self, device: usize, has_time: bool) -> u64 {
        let event = self.new_handle();
        self.events.insert(event, Event { device, has_time, ..Event::default() });
        event
    }

    pub(crate) fn record(&mut self, number: u64, stream: u64) -> ApiResult {
        let capture = self.streams[&stream].capture;
        let device = self.streams[&stream].device;
        let event = self
            .events
            .get(&number)
            .filter(|event| event.device == device)
            .ok_or(Status::INVALID_HANDLE)?;
        let record = event.recorded + 1;
        let captured = match capture {
            Some(capture) => {
                Some(Captured { capture, ends: self.capture(capture)?.ends[&stream].clone() })
            }
            None => {
                self.enqueue(stream, Work::Record { event: number, record })?;
                None
            }
        };
        if let Some(event) = self.events.get_mut(&number) {
            event.recorded = if captured.is_none() { record } else { event.recorded };
            event.captured = captured;
        }
        Ok(())
    }

    /// Makes a stream wait for an event. An event of a capture adds the stream to the capture.
    pub(crate) fn wait(&mut self, stream: u64, number: u64) -> ApiResult {
        let event = self.events.get(&number).ok_or(Status::INVALID_HANDLE)?;
        let (record, captured) = (event.recorded, event.captured.clone());
        let is_skipped = self.is_skipped_wait();
        let capture = self.streams[&stream].capture;
        let Some(captured) = captured else {
            if let Some(capture) = capture {
                self.invalidate(capture);
                return Err(Status::STREAM_CAPTURE_ISOLATION);
            }
            return if is_skipped {
                Ok(())
            } else {
                self.enqueue(stream, Work::Wait { event: number, record })
            };
        };
        if capture.is_some_and(|capture| capture != captured.capture) {
            return Err(Status::STREAM_CAPTURE_MERGE);
        }
        let Ok(known) = self.capture(captured.capture) else {
            return Err(Status::STREAM_CAPTURE_ISOLATION);
        };
        let ends = known.ends.entry(stream).or_default();
        if !is_skipped {
            ends.extend(&captured.ends);
        }
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some(captured.capture);
        }
        Ok(())
    }

    /// Starts a capture in a mode of `CUstreamCaptureMode`.
    pub(crate) fn begin_capture(&mut self, stream: u64, mode: u32) -> ApiResult {
        let mode = match mode {
            0 => CaptureMode::AllThreads,
            1 => CaptureMode::OwnThread,
            2 => CaptureMode::NoThread,
            _ => return Err(Status::INVALID_VALUE),
        };
        let number = self.new_handle();
        let device = self.streams[&stream].device;
        if self.devices[device].null_stream == stream {
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        let known = self
            .streams
            .get_mut(&stream)
            .filter(|known| known.capture.is_none())
            .ok_or(Status::ILLEGAL_STATE)?;
        known.capture = Some(number);
        let ends = BTreeMap::from([(stream, BTreeSet::new())]);
        let (nodes, thread) = (Vec::new(), thread::current().id());
        let capture = Capture { origin: stream, nodes, ends, is_invalid: false, mode, thread };
        self.captures.insert(number, capture);
        Ok(())
    }

    /// Returns the graph that was captured. The stream must be the origin.
    pub(crate) fn end_capture(&mut self, stream: u64) -> ApiResult<Graph> {
        let number = self.streams[&stream].capture.ok_or(Status::ILLEGAL_STATE)?;
        if self.captures[&number].origin != stream {
            self.invalidate(number);
            return Err(Status::STREAM_CAPTURE_UNMATCHED);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(number)) {
            stream.capture = None;
        }
        let capture = self.captures.remove(&number).ok_or(Status::ILLEGAL_STATE)?;
        if capture.is_invalid {
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        if capture.joined().len() < capture.nodes.len() {
            return Err(Status::STREAM_CAPTURE_UNJOINED);
        }
        Ok(Graph::new(capture.nodes))
    }

    /// Returns true if a capture has failed. Its end reports the error.
    pub(crate) fn is_invalid(&self, capture: u64) -> bool {
        self.captures.get(&capture).is_none_or(|capture| capture.is_invalid)
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalid = true;
        }
    }

    /// Rejects calls that a capture does not allow, and invalidates the stream's capture.
    pub(crate) fn refuse_in_capture(&mut self, stream: u64) -> ApiResult {
        let Some(capture) = self.streams[&stream].capture else { return Ok(()) };
        self.invalidate(capture);
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Rejects calls that CUDA calls potentially unsafe: in the thread of a capture, or in all.
    pub(crate) fn refuse_unsafe_call(&mut self) -> ApiResult {
        let this = thread::current().id();
        self.refuse_in(|_, it| match it.mode {
            CaptureMode::AllThreads => true,
            CaptureMode::OwnThread => it.thread == this,
            CaptureMode::NoThread => false,
        })
    }

    /// Rejects calls that wait for all work of a device, whichever thread captures it.
    pub(crate) fn refuse_in_captures_on(&mut self, device: usize) -> ApiResult {
        self.refuse_in(|streams, capture| {
            capture.ends.keys().any(|it| streams.get(it).is_some_and(|it| it.device == device))
        })
    }

    /// Rejects calls on a device's null stream, with which captured streams synchronize.
    pub(crate) fn refuse_implicit_dependency(&mut self, device: usize) -> ApiResult {
        self.refuse_in(|streams, capture| {
            let mut captured = capture.ends.keys().filter_map(|it| streams.get(it));
            captured.any(|it| it.device == device && it.is_blocking)
        })
    }

    /// Rejects a call if there are such captures, and invalidates them.
    fn refuse_in(
        &mut self,
        is_refusing: impl Fn(&BTreeMap<u64, Stream>, &Capture) -> bool,
    ) -> ApiResult {
        let mut result = Ok(());
        for capture in self.captures.values_mut().filter(|it| is_refusing(&self.streams, it)) {
            capture.is_invalid = true;
            result = Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        result
    }

    fn capture(&mut self, number: u64) -> ApiResult<&mut Capture> {
        let capture = self.captures.get_mut(&number).ok_or(Status::ILLEGAL_STATE)?;
        if capture.is_invalid { Err(Status::STREAM_CAPTURE_INVALIDATED) } else { Ok(capture) }
    }
}

impl Capture {
    /// Adds a node after the last nodes of all these streams.
    fn add(
        &mut self,
        streams: &[u64],
        task: Task,
        communication: Option<Communication>,
    ) -> ApiResult {
        let mut dependencies = BTreeSet::new();
        for stream in streams {
            dependencies.extend(
                self.ends.insert(*stream, BTreeSet::from([self.nodes.len()])).into_iter().flatten(),
            );
        }
        self.nodes.push(Node {
            task,
            dependencies: dependencies.into_iter().collect(),
            stream: streams[0],
            communication,
        });
        Ok(())
    }

    /// Returns the nodes that the origin stream depends on at the end.
    fn joined(&self) -> BTreeSet<usize> {
        let mut joined = BTreeSet::new();
        let mut open: Vec<usize> = self.ends[&self.origin].iter().copied().collect();
        while let Some(node) = open.pop() {
            if joined.insert(node) {
                open.extend(&self.nodes[node].dependencies);
            }
        }
        joined
    }
}
