//! Stream capture: work becomes a graph instead of running.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::{Event, Rendezvous, State};
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

    pub(crate) fn begin_capture(&mut self, stream: u64) -> ApiResult {
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
        self.captures
            .insert(number, Capture { origin: stream, nodes: Vec::new(), ends, is_invalid: false });
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

    /// Rejects calls that no capture of any stream allows, and invalidates all captures.
    pub(crate) fn refuse_in_captures(&mut self) -> ApiResult {
        for capture in self.captures.values_mut() {
            capture.is_invalid = true;
        }
        if self.captures.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_UNSUPPORTED) }
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
