//! Contexts: one per device, and one current context per thread.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::{c_int, c_uint};

use crate::ffi::{Handle, Out};
use crate::state::{State, current_context, pop_context, push_context, set_context};
use crate::status::{ApiResult, Status};

/// Lowest and highest priority of streams.
pub(super) const PRIORITIES: (c_int, c_int) = (0, -5);

driver! {
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) |state| {
        let device = state.device(device)?;
        state.check_device(device)?;
        context.put(state.retain_context(device)).ok_or(Status::INVALID_VALUE)
    }
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |state| {
        let device = state.device(device)?;
        let left = state.devices[device].retained.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if left == 0 {
            state.finish_device(device)?;
        }
        state.devices[device].retained = left;
        state.write_counters();
        Ok(())
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) |state| { state.device(device).map(|_| ()) }
    fn cuCtxSetCurrent(context: Handle) |state| {
        check(state, context)?;
        set_context(context);
        Ok(())
    }
    fn cuCtxGetCurrent(context: Out<Handle>) |_state| { context.put(current_context()).ok_or(Status::INVALID_VALUE) }
    fn cuCtxPushCurrent_v2(context: Handle) |state| {
        check(state, context)?;
        push_context(context);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: Out<Handle>) |_state| {
        let popped = pop_context().ok_or(Status::INVALID_CONTEXT)?;
        if context.is_null() { Ok(()) } else { context.put(popped).ok_or(Status::INVALID_VALUE) }
    }
    fn cuCtxGetDevice(device: Out<c_int>) |state| {
        let current = state.context_device(current_context())?;
        device.put(current.try_into().map_err(|_| Status::INVALID_DEVICE)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuCtxSynchronize() |state| {
        let device = state.current_device()?;
        state.refuse_in_captures_on(device)?;
        state.finish_device(device)
    }
    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |_state| {
        least.put(PRIORITIES.0).and(greatest.put(PRIORITIES.1)).ok_or(Status::INVALID_VALUE)
    }
    fn cuCtxEnablePeerAccess(peer: Handle, _flags: c_uint) |state| {
        let device = state.current_device()?;
        let peer = state.context_device(peer)?;
        if peer == device || !state.settings.has_peer_access {
            return Err(Status::PEER_ACCESS_UNSUPPORTED);
        }
        let is_new = state.devices[device].peers.insert(peer);
        if is_new { Ok(()) } else { Err(Status::PEER_ACCESS_ALREADY_ENABLED) }
    }
}

fn check(state: &State, context: Handle) -> ApiResult {
    if context == Handle(0) { Ok(()) } else { state.context_device(context).map(|_| ()) }
}
