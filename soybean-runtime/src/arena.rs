//! The one block of memory of a rank.
#![expect(unsafe_code, reason = "ranks read each other's memory, which references cannot express")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ptr::NonNull,
};

use soybean_plan::Buffer;

use crate::{Error, ErrorKind, check::ALIGNMENT};

/// Zeroed memory of a rank, aligned to 64 bytes. It hands out pointers only; whoever follows them says why nobody else writes there.
pub(crate) struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the arena, and this type never reads or writes it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of this size.
    pub(crate) fn new(n_bytes: usize) -> Result<Self, Error> {
        let layout = Layout::from_size_align(n_bytes.max(ALIGNMENT), ALIGNMENT)
            .map_err(|_| Error::new(ErrorKind::Program, format!("an arena of {n_bytes} bytes")))?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Ok(Self { start, layout })
    }

    /// Where a buffer begins that lies within the arena, as [`check_tables`](crate::check::check_tables) makes sure.
    pub(crate) const fn pointer(&self, buffer: &Buffer) -> *mut f32 {
        self.start.as_ptr().wrapping_add(buffer.offset).cast()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
