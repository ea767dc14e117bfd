//! Events.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::c_uint;

use crate::ffi::{Handle, Out};
use crate::state::{Event, State};
use crate::status::{ApiResult, Status};

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;

driver! {
    fn cuEventCreate(event: Out<Handle>, flags: c_uint) |state| {
        let device = state.current_device()?;
        let number = state.new_event(device, flags & DISABLE_TIMING == 0);
        event.put(Handle(number)).ok_or(Status::INVALID_VALUE)
    }
    fn cuEventDestroy_v2(event: Handle) |state| {
        // Pending waits remain valid.
        let last = find(state, event)?.recorded;
        state.forget_event(event.0, last);
        Ok(())
    }
    fn cuEventRecord(event: Handle, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        state.record(event.0, stream)
    }
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) |state| {
        // An external event would be a node of the graph.
        if flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let stream = state.stream(stream)?;
        state.record(event.0, stream)
    }
    fn cuEventQuery(event: Handle) |state| {
        refuse_captured(state, event)?;
        state.run_some();
        let known = find(state, event)?;
        state.check_device(known.device)?;
        if known.completed >= known.recorded { Ok(()) } else { Err(Status::NOT_READY) }
    }
    fn cuEventSynchronize(event: Handle) |state| {
        refuse_captured(state, event)?;
        state.finish_event(event.0)
    }
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) |state| { put_elapsed(state, milliseconds, start, end) }
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) |state| { put_elapsed(state, milliseconds, start, end) }
}

fn find(state: &State, event: Handle) -> ApiResult<&Event> {
    state.events.get(&event.0).ok_or(Status::INVALID_HANDLE)
}

/// Rejects events that were recorded in a capture, which have no state.
fn refuse_captured(state: &State, event: Handle) -> ApiResult {
    if find(state, event)?.captured.is_some() { Err(Status::CAPTURED_EVENT) } else { Ok(()) }
}

fn put_elapsed(state: &State, milliseconds: Out<f32>, start: Handle, end: Handle) -> ApiResult {
    let events = [find(state, start)?, find(state, end)?];
    if events.iter().any(|event| !event.has_time || event.recorded == 0 || event.captured.is_some())
    {
        return Err(Status::INVALID_HANDLE);
    }
    if events.iter().any(|event| event.completed < event.recorded) {
        return Err(Status::NOT_READY);
    }
    let nanoseconds = events[1].clock as f64 - events[0].clock as f64;
    #[expect(clippy::cast_possible_truncation, reason = "CUDA gives no more digits")]
    let elapsed = (nanoseconds / 1e6) as f32;
    milliseconds.put(elapsed).ok_or(Status::INVALID_VALUE)
}
