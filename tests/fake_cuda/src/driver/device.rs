//! Driver version and device properties.

#![expect(unsafe_code, reason = "C finds functions by name")]

use std::ffi::{c_char, c_int, c_uint};

use crate::ffi::{Address, Handle, In, Out};
use crate::state::State;
use crate::status::{ApiResult, Status};

driver! {
    fn cuInit(_flags: c_uint) |state| {
        if state.devices.is_empty() { Err(Status::NO_DEVICE) } else { Ok(()) }
    }
    fn cuDriverGetVersion(version: Out<c_int>) |state| {
        version.put(state.settings.driver_version).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGetCount(count: Out<c_int>) |state| {
        count.put(state.devices.len().try_into().map_err(|_| Status::INVALID_VALUE)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGet(device: Out<c_int>, number: c_int) |state| {
        state.device(number)?;
        device.put(number).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGetName(name: Out<u8>, capacity: c_int, device: c_int) |state| {
        state.device(device)?;
        let capacity = usize::try_from(capacity).ok().filter(|&it| it > 0).ok_or(Status::INVALID_VALUE)?;
        let mut text = b"virtual device".to_vec();
        text.truncate(capacity - 1);
        text.push(0);
        name.put_list(&text).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGetUuid(uuid: Out<u8>, device: c_int) |state| { put_uuid(state, uuid, device) }
    fn cuDeviceGetUuid_v2(uuid: Out<u8>, device: c_int) |state| { put_uuid(state, uuid, device) }
    fn cuDeviceTotalMem_v2(n_bytes: Out<usize>, device: c_int) |state| {
        let (total, _) = state.machine.memory.capacity(state.device(device)?);
        n_bytes.put(total.try_into().map_err(|_| Status::INVALID_VALUE)?).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) |state| {
        let device = state.device(device)?;
        value.put(attribute_value(attribute, device)).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceCanAccessPeer(can_access: Out<c_int>, device: c_int, peer: c_int) |state| {
        let is_other = state.device(device)? != state.device(peer)?;
        can_access.put(c_int::from(is_other && state.settings.has_peer_access)).ok_or(Status::INVALID_VALUE)
    }
    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) |state| { put_pool(state, pool, device) }
    fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) |state| { put_pool(state, pool, device) }
    fn cuMemPoolSetAttribute(_pool: Handle, _attribute: c_uint, _value: Address) |_state| { Ok(()) }
    fn cuMemPoolSetAccess(_pool: Handle, _accesses: Address, _count: usize) |_state| { Ok(()) }
    fn cuMemPoolTrimTo(_pool: Handle, _n_bytes: usize) |_state| { Ok(()) }
    fn cuGetErrorName(status: Status, name: Out<Address>) |_state| {
        let (text, _) = status.texts().ok_or(Status::INVALID_VALUE)?;
        name.put(text).ok_or(Status::INVALID_VALUE)
    }
    fn cuGetErrorString(status: Status, text: Out<Address>) |_state| {
        let (_, found) = status.texts().ok_or(Status::INVALID_VALUE)?;
        text.put(found).ok_or(Status::INVALID_VALUE)
    }
    fn cuGetProcAddress_v2(_symbol: In<c_char>, _function: Out<Address>, _version: c_int, _flags: u64, _found: Out<c_uint>) |_state| {
        Err(Status::NOT_SUPPORTED)
    }
}

fn put_uuid(state: &State, uuid: Out<u8>, device: c_int) -> ApiResult {
    let device = state.device(device)?;
    let mut bytes = *b"virtual device  ";
    bytes[15] = state.settings.devices[device].try_into().unwrap_or(u8::MAX);
    uuid.put_list(&bytes).ok_or(Status::INVALID_VALUE)
}

fn put_pool(state: &State, pool: Out<Handle>, device: c_int) -> ApiResult {
    let device = state.device(device)?;
    pool.put(Handle(0x800 + device as u64 * 8)).ok_or(Status::INVALID_VALUE)
}

/// Shared memory that a kernel may use by default, and at most.
pub(super) const SHARED_BYTES: (u32, u32) = (48 << 10, 227 << 10);

/// Attributes of an H100, but with four multiprocessors, which suffice for tests.
fn attribute_value(attribute: c_uint, device: usize) -> c_int {
    match attribute {
        // Threads per block, and the extents of blocks and grids.
        1..=3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65535,
        8 => SHARED_BYTES.0.cast_signed(),
        10 => 32,
        // Registers per block and per multiprocessor.
        12 | 82 => 65536,
        // Kilohertz.
        13 => 1_980_000,
        16 => 4,
        // Concurrent kernels, unified addressing, memory pools, pinned memory, host memory.
        19 | 31 | 41 | 115 => 1,
        // PCI bus, device and domain.
        33 => device.try_into().unwrap_or(c_int::MAX),
        37 => 5120,
        38 => 50 << 20,
        39 => 2048,
        40 => 3,
        // Compute capability 9.0.
        75 => 9,
        78 => 1,
        81 => 228 << 10,
        97 => SHARED_BYTES.1.cast_signed(),
        106 => 32,
        _ => 0,
    }
}
