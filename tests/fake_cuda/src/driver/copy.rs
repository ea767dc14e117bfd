//! Copies and memsets.
//!
//! Copies from pageable host memory read it when they are submitted. Copies to it have written it
//! when they return. Pinned memory is accessed when the copy runs. A copy from pageable memory may
//! be incomplete on the device when `cuMemcpyHtoD` returns: CUDA only promises that the bytes have
//! been read.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::{c_uchar, c_uint};

use crate::ffi::{Handle, host_bytes, put_host_bytes};
use crate::memory::MemoryKind;
use crate::state::State;
use crate::status::{ApiResult, Status};
use crate::work::Task;

driver! {
    fn cuMemcpyHtoD_v2(to: u64, from: u64, n_bytes: usize) |state| {
        let stream = null_stream(state)?;
        state.finish_stream(stream)?;
        from_host(state, to, from, n_bytes, stream)?;
        if is_pinned(state, from, n_bytes) { state.finish_stream(stream) } else { Ok(()) }
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, n_bytes: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        from_host(state, to, from, n_bytes, stream)
    }
    fn cuMemcpyDtoH_v2(to: u64, from: u64, n_bytes: usize) |state| {
        let stream = null_stream(state)?;
        to_host(state, to, from, n_bytes, stream)?;
        state.finish_stream(stream)
    }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, n_bytes: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        to_host(state, to, from, n_bytes, stream)
    }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, n_bytes: usize) |state| {
        let stream = null_stream(state)?;
        between(state, to, from, n_bytes, stream)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, n_bytes: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        between(state, to, from, n_bytes, stream)
    }
    fn cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, n_bytes: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        let (to_device, from_device) = (state.context_device(to_context)?, state.context_device(from_context)?);
        check(state, to, n_bytes, &[to_device])?;
        check(state, from, n_bytes, &[from_device])?;
        copy(state, to, from, n_bytes, stream)
    }
    fn cuMemsetD8_v2(to: u64, value: c_uchar, count: usize) |state| {
        let stream = null_stream(state)?;
        fill(state, to, value, count, stream)
    }
    fn cuMemsetD8Async(to: u64, value: c_uchar, count: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        fill(state, to, value, count, stream)
    }
    fn cuMemsetD32_v2(to: u64, value: c_uint, count: usize) |state| {
        let stream = null_stream(state)?;
        fill(state, to, value, count, stream)
    }
    fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        fill(state, to, value, count, stream)
    }
}

/// Returns the null stream of the current context.
fn null_stream(state: &mut State) -> ApiResult<u64> {
    let stream = state.stream(Handle(0))?;
    state.refuse_unsafe_call()?;
    state.refuse_implicit_dependency(state.streams[&stream].device)?;
    Ok(stream)
}

fn is_pinned(state: &State, address: u64, n_bytes: usize) -> bool {
    state.machine.memory.kind(address, n_bytes) == Some(MemoryKind::Host)
}

/// Rejects ranges that are not in the memory of one of these devices.
fn check(state: &State, address: u64, n_bytes: usize, devices: &[usize]) -> ApiResult {
    match state.machine.memory.kind(address, n_bytes) {
        Some(MemoryKind::Device(device)) if devices.contains(&device) => Ok(()),
        _ if n_bytes == 0 => Ok(()),
        Some(_) | None => Err(Status::INVALID_VALUE),
    }
}

fn from_host(state: &mut State, to: u64, from: u64, n_bytes: usize, stream: u64) -> ApiResult {
    let device = state.streams[&stream].device;
    check(state, to, n_bytes, &[device])?;
    if is_pinned(state, from, n_bytes) {
        return copy(state, to, from, n_bytes, stream);
    }
    state.refuse_in_capture(stream)?;
    let bytes = host_bytes(from, n_bytes).ok_or(Status::INVALID_VALUE)?;
    state.submit_here(stream, Task::new(device, move |machine| machine.memory.write(to, &bytes)))
}

fn to_host(state: &mut State, to: u64, from: u64, n_bytes: usize, stream: u64) -> ApiResult {
    check(state, from, n_bytes, &[state.streams[&stream].device])?;
    if is_pinned(state, to, n_bytes) {
        return copy(state, to, from, n_bytes, stream);
    }
    state.refuse_in_capture(stream)?;
    state.finish_stream(stream)?;
    let bytes = state.machine.memory.read::<u8>(from, n_bytes).map_err(|fault| fault.status)?;
    put_host_bytes(to, &bytes).ok_or(Status::INVALID_VALUE)
}

/// Copies within a device, or between devices with peer access.
fn between(state: &mut State, to: u64, from: u64, n_bytes: usize, stream: u64) -> ApiResult {
    let device = state.streams[&stream].device;
    let mut devices: Vec<usize> = state.devices[device].peers.iter().copied().collect();
    devices.push(device);
    check(state, to, n_bytes, &devices)?;
    check(state, from, n_bytes, &devices)?;
    copy(state, to, from, n_bytes, stream)
}

fn copy(state: &mut State, to: u64, from: u64, n_bytes: usize, stream: u64) -> ApiResult {
    let device = state.streams[&stream].device;
    state.submit_here(
        stream,
        Task::new(device, move |machine| machine.memory.copy(to, from, n_bytes)),
    )
}

fn fill<T: crate::memory::Plain + Send + Sync + 'static>(
    state: &mut State,
    to: u64,
    value: T,
    count: usize,
    stream: u64,
) -> ApiResult {
    let device = state.streams[&stream].device;
    let n_bytes = count.checked_mul(size_of::<T>()).ok_or(Status::INVALID_VALUE)?;
    if !to.is_multiple_of(size_of::<T>() as u64) {
        return Err(Status::INVALID_VALUE);
    }
    check(state, to, n_bytes, &[device])?;
    state.submit_here(
        stream,
        Task::new(device, move |machine| machine.memory.write(to, &vec![value; count])),
    )
}
