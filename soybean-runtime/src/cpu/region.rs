//! Regions of memory that kernels work on.
#![expect(unsafe_code, reason = "threads share regions")]

use soybean_plan::DType;

/// The elements of a buffer, of 4 or of 2 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) pointer: *mut f32,
    pub(crate) n_elements: usize,
    pub(crate) dtype: DType,
}

// SAFETY: a region is an address, not a permission: each access justifies that it is exclusive.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Returns the address of an element of 4 bytes.
    pub(crate) const fn at(&self, index: usize) -> *mut f32 {
        self.pointer.wrapping_add(index)
    }

    /// Returns the address of an element of any type.
    pub(crate) const fn address(&self, index: usize) -> *mut u8 {
        self.pointer.cast::<u8>().wrapping_add(index * self.dtype.bytes())
    }

    /// Returns true if the two share memory.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (start, end) = (|it: &Self| it.address(0), |it: &Self| it.address(it.n_elements));
        start(self) < end(other) && start(other) < end(self)
    }
}
