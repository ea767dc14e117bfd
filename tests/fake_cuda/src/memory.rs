//! Device memory and pinned host memory.
//!
//! Every allocation lies between two red zones and is filled with NaN. All accesses through this
//! table are checked.

#![expect(unsafe_code, reason = "addresses are handed out to C")]

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr;

use crate::status::{ApiResult, DeviceError, Status};

/// Kind of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device(usize),
    /// Pinned host memory.
    Host,
}

/// All allocations by address.
#[derive(Debug)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Block>,
    /// Bytes per device.
    capacity: u64,
    used: Vec<u64>,
}

#[derive(Debug)]
struct Block {
    n_bytes: usize,
    kind: MemoryKind,
}

/// Number types for which all bit patterns are valid.
pub(crate) trait Plain: Copy + Default {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for f32 {}

/// Alignment of CUDA allocations.
const ALIGNMENT: usize = 256;
/// Content of the red zones.
const RED_ZONE: [u8; 256] = [0xa5; 256];
/// NaN in f32 and bf16, and -1 in integers.
const POISON: u8 = 0xff;

impl Memory {
    pub(crate) fn new(n_devices: usize, capacity: u64) -> Self {
        Self { blocks: BTreeMap::new(), capacity, used: vec![0; n_devices] }
    }

    /// Returns the total and the free bytes of a device.
    pub(crate) fn capacity(&self, device: usize) -> (u64, u64) {
        (self.capacity, self.capacity - self.used[device])
    }

    /// Allocates memory and returns its address.
    pub(crate) fn allocate(&mut self, kind: MemoryKind, n_bytes: usize) -> ApiResult<u64> {
        let layout = layout(n_bytes).filter(|_| n_bytes > 0).ok_or(Status::INVALID_VALUE)?;
        if let MemoryKind::Device(device) = kind {
            let used = self.used[device].saturating_add(n_bytes as u64);
            if used > self.capacity {
                return Err(Status::OUT_OF_MEMORY);
            }
            self.used[device] = used;
        }
        // SAFETY: the layout is larger than its two red zones.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(Status::OUT_OF_MEMORY);
        }
        let address = start as u64 + RED_ZONE.len() as u64;
        // SAFETY: the allocation consists of a red zone, the bytes and another red zone.
        unsafe { ptr::write_bytes(address as *mut u8, POISON, n_bytes) };
        for zone in red_zones(address, n_bytes) {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(RED_ZONE.as_ptr(), zone as *mut u8, RED_ZONE.len()) };
        }
        self.blocks.insert(address, Block { n_bytes, kind });
        Ok(address)
    }

    /// Frees an allocation by its start address.
    pub(crate) fn free(&mut self, address: u64, is_host: bool) -> Result<(), DeviceError> {
        let invalid = || {
            DeviceError::new(
                Status::INVALID_VALUE,
                format!("{address:#x} is not the start of a block"),
            )
        };
        let block =
            self.blocks.get(&address).filter(|block| (block.kind == MemoryKind::Host) == is_host);
        let n_bytes = block.ok_or_else(invalid)?.n_bytes;
        let mut zone = RED_ZONE;
        let mut is_whole = true;
        for at in red_zones(address, n_bytes) {
            // SAFETY: the allocation contains this red zone.
            unsafe { ptr::copy_nonoverlapping(at as *const u8, zone.as_mut_ptr(), RED_ZONE.len()) };
            is_whole &= zone == RED_ZONE;
        }
        if let Some(Block { kind: MemoryKind::Device(device), .. }) = self.blocks.remove(&address) {
            self.used[device] -= n_bytes as u64;
        }
        if let Some(layout) = layout(n_bytes) {
            // SAFETY: `allocate` used this layout, and the allocation was just removed from the
            // table.
            unsafe { dealloc((address - RED_ZONE.len() as u64) as *mut u8, layout) };
        }
        let message = || format!("something wrote outside of the {n_bytes} bytes at {address:#x}");
        if is_whole { Ok(()) } else { Err(DeviceError::new(Status::ILLEGAL_ADDRESS, message())) }
    }

    /// Returns the kind of memory of a range, if one allocation contains it.
    pub(crate) fn kind(&self, address: u64, n_bytes: usize) -> Option<MemoryKind> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        let end = address.checked_add(n_bytes as u64)?;
        // The end of an allocation does not belong to it, even for an empty range.
        (end <= start + block.n_bytes as u64 && address < start + block.n_bytes as u64)
            .then_some(block.kind)
    }

    /// Copies bytes between allocations.
    pub(crate) fn copy(&self, to: u64, from: u64, n_bytes: usize) -> Result<(), DeviceError> {
        self.check(to, n_bytes)?;
        self.check(from, n_bytes)?;
        // SAFETY: both ranges lie within allocations.
        unsafe { ptr::copy(from as *const u8, to as *mut u8, n_bytes) };
        Ok(())
    }

    /// Reads numbers.
    pub(crate) fn read<T: Plain>(&self, from: u64, count: usize) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::default(); count];
        self.check(from, size_of_val(&*values))?;
        // SAFETY: the range lies within an allocation, and all bit patterns are valid.
        unsafe {
            ptr::copy_nonoverlapping(
                from as *const u8,
                values.as_mut_ptr().cast(),
                size_of_val(&*values),
            );
        };
        Ok(values)
    }

    /// Writes numbers.
    pub(crate) fn write<T: Plain>(&self, to: u64, values: &[T]) -> Result<(), DeviceError> {
        self.check(to, size_of_val(values))?;
        // SAFETY: the range lies within an allocation.
        unsafe {
            ptr::copy_nonoverlapping(values.as_ptr().cast(), to as *mut u8, size_of_val(values));
        };
        Ok(())
    }

    fn check(&self, address: u64, n_bytes: usize) -> Result<(), DeviceError> {
        if n_bytes == 0 || self.kind(address, n_bytes).is_some() {
            return Ok(());
        }
        let message = format!("{n_bytes} bytes at {address:#x} are not within one block of memory");
        Err(DeviceError::new(Status::ILLEGAL_ADDRESS, message))
    }
}

fn layout(n_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(n_bytes.checked_add(2 * RED_ZONE.len())?, ALIGNMENT).ok()
}

/// Returns the addresses of the red zones of an allocation.
fn red_zones(address: u64, n_bytes: usize) -> [u64; 2] {
    [address - RED_ZONE.len() as u64, address + n_bytes as u64]
}
