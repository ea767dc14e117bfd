//! Streams.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::{c_int, c_uint};

use super::context::PRIORITIES;
use crate::ffi::{Address, Handle, Out};
use crate::state::{State, Stream};
use crate::status::{ApiResult, Status};

driver! {
    fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) |state| { create(state, stream, flags, 0) }
    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) |state| { create(state, stream, flags, priority) }
    fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) |state| {
        let stream = state.stream(stream)?;
        priority.put(state.streams[&stream].priority).ok_or(Status::INVALID_VALUE)
    }
    fn cuStreamDestroy_v2(stream: Handle) |state| {
        // The driver completes pending work first.
        let stream = state.streams.contains_key(&stream.0).then_some(stream.0).ok_or(Status::INVALID_HANDLE)?;
        state.refuse_in_capture(stream)?;
        let finished = state.finish_stream(stream);
        state.streams.remove(&stream);
        finished
    }
    fn cuStreamSynchronize(stream: Handle) |state| {
        let stream = state.stream(stream)?;
        state.refuse_in_capture(stream)?;
        state.finish_stream(stream)
    }
    fn cuStreamQuery(stream: Handle) |state| {
        let stream = state.stream(stream)?;
        state.refuse_in_capture(stream)?;
        state.run_some();
        state.check_device(state.streams[&stream].device)?;
        if state.streams[&stream].queue.is_empty() { Ok(()) } else { Err(Status::NOT_READY) }
    }
    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) |state| {
        let stream = state.stream(stream)?;
        state.wait(stream, event.0)
    }
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) |state| {
        let stream = state.stream(stream)?;
        state.check_device(state.streams[&stream].device)?;
        state.begin_capture(stream, mode)
    }
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) |state| {
        let stream = state.stream(stream)?;
        graph.put(Handle(0)).ok_or(Status::INVALID_VALUE)?;
        let captured = state.end_capture(stream)?;
        let number = state.new_handle();
        state.graphs.insert(number, captured.into());
        graph.put(Handle(number)).ok_or(Status::INVALID_VALUE)
    }
    fn cuStreamIsCapturing(stream: Handle, status: Out<c_uint>) |state| {
        let stream = state.stream(stream)?;
        status.put(capture_status(state, stream)).ok_or(Status::INVALID_VALUE)
    }
    fn cuStreamGetCaptureInfo(stream: Handle, status: Out<c_uint>, number: Out<u64>) |state| {
        put_capture(state, stream, status, number, &[])
    }
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<c_uint>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<Address>, count: Out<usize>,
    ) |state| {
        put_capture(state, stream, status, number, &[graph.is_null(), dependencies.is_null(), count.is_null()])
    }
    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<c_uint>, number: Out<u64>, graph: Out<Handle>, dependencies: Out<Address>, edges: Out<Address>, count: Out<usize>,
    ) |state| {
        put_capture(state, stream, status, number, &[graph.is_null(), dependencies.is_null(), edges.is_null(), count.is_null()])
    }
}

fn create(state: &mut State, stream: Out<Handle>, flags: c_uint, priority: c_int) -> ApiResult {
    let device = state.current_device()?;
    let number = state.new_handle();
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    state.streams.insert(
        number,
        Stream { device, is_blocking: flags & 1 == 0, priority, ..Stream::default() },
    );
    stream.put(Handle(number)).ok_or(Status::INVALID_VALUE)
}

/// `CUstreamCaptureStatus`: none, active, or invalidated.
fn capture_status(state: &State, stream: u64) -> c_uint {
    state.streams[&stream]
        .capture
        .map_or(0, |capture| if state.is_invalid(capture) { 2 } else { 1 })
}

/// Returns the capture status of a stream. The graph of a capture is not available.
fn put_capture(
    state: &State,
    stream: Handle,
    status: Out<c_uint>,
    number: Out<u64>,
    unasked: &[bool],
) -> ApiResult {
    let stream = state.stream(stream)?;
    status.put(capture_status(state, stream)).ok_or(Status::INVALID_VALUE)?;
    if !number.is_null() {
        number.put(state.streams[&stream].capture.unwrap_or(0)).ok_or(Status::INVALID_VALUE)?;
    }
    if unasked.contains(&false) { Err(Status::NOT_SUPPORTED) } else { Ok(()) }
}
