//! Device memory and pinned host memory.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::c_uint;

use crate::ffi::{Handle, Out};
use crate::memory::MemoryKind;
use crate::state::{State, report_problem};
use crate::status::{DeviceError, Status};
use crate::work::Task;

driver! {
    fn cuMemAlloc_v2(address: Out<u64>, n_bytes: usize) |state| {
        let device = state.current_device()?;
        state.refuse_unsafe_call()?;
        address.put(state.machine.memory.allocate(MemoryKind::Device(device), n_bytes)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuMemAllocAsync(address: Out<u64>, n_bytes: usize, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        // A graph that allocates memory cannot be launched twice.
        state.refuse_in_capture(stream)?;
        let device = state.streams[&stream].device;
        state.check_device(device)?;
        address.put(state.machine.memory.allocate(MemoryKind::Device(device), n_bytes)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuMemFree_v2(address: u64) |state| {
        if address == 0 {
            return Ok(());
        }
        let Some(MemoryKind::Device(device)) = state.machine.memory.kind(address, 0) else { return Err(Status::INVALID_VALUE) };
        state.refuse_unsafe_call()?;
        // The driver waits for the whole device.
        state.finish_device(device)?;
        let freed = state.machine.memory.free(address, false);
        freed.map_err(|fault| error(state, device, &fault))
    }
    fn cuMemFreeAsync(address: u64, stream: Handle) |state| {
        let stream = state.stream(stream)?;
        let device = state.streams[&stream].device;
        if state.machine.memory.kind(address, 0) != Some(MemoryKind::Device(device)) {
            return Err(Status::INVALID_VALUE);
        }
        state.refuse_in_capture(stream)?;
        state.submit(stream, Task::new(device, move |machine| machine.memory.free(address, false)))
    }
    fn cuMemHostAlloc(address: Out<u64>, n_bytes: usize, _flags: c_uint) |state| {
        state.current_device()?;
        state.refuse_unsafe_call()?;
        address.put(state.machine.memory.allocate(MemoryKind::Host, n_bytes)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuMemFreeHost(address: u64) |state| {
        let device = state.current_device()?;
        state.refuse_unsafe_call()?;
        // Unlike `cuMemFree`, this does not wait. Work that still uses the memory fails when it
        // runs.
        let freed = state.machine.memory.free(address, true);
        freed.map_err(|fault| error(state, device, &fault))
    }
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |state| {
        let (all, left) = state.machine.memory.capacity(state.current_device()?);
        let number = |n_bytes: u64| usize::try_from(n_bytes).map_err(|_| Status::INVALID_VALUE);
        free.put(number(left)?).and(total.put(number(all)?)).ok_or(Status::INVALID_VALUE)
    }
}

fn error(state: &mut State, device: usize, fault: &DeviceError) -> Status {
    if fault.status == Status::INVALID_VALUE {
        report_problem(&fault.message);
    } else {
        state.fail_device(device, fault);
    }
    fault.status
}
