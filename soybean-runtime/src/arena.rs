//! The arena: one block of memory for all buffers of a rank.
#![expect(unsafe_code, reason = "ranks read each other's memory, which references cannot express")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ops::{Index, Range},
    ptr::NonNull,
    sync::Arc,
};

use soybean_plan::Buffer;

use crate::{Error, ErrorKind};

/// The alignment of memory in bytes: a line of the cache.
pub(crate) const ALIGNMENT: usize = 64;

/// Zeroed memory of a rank, aligned to 64 bytes.
///
/// It returns pointers only. Code that dereferences them must argue that no other thread writes
/// there.
pub(crate) struct Arena {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the arena, and this type never reads or writes it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates an arena of this size.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new(n_bytes: usize) -> Result<Self, Error> {
        let layout = Layout::from_size_align(n_bytes.max(ALIGNMENT), ALIGNMENT);
        let layout = layout.map_err(|_| too_large(n_bytes))?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(|| too_large(n_bytes))?;
        Ok(Self { start, layout })
    }

    /// Returns a pointer to a buffer. [`check_tables`](crate::check::check_tables) checks that all
    /// buffers are within the arena.
    pub(crate) const fn pointer(&self, buffer: &Buffer) -> *mut f32 {
        self.start.as_ptr().wrapping_add(buffer.offset).cast()
    }

    /// Returns a pointer to the first byte.
    pub(crate) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

fn too_large(n_bytes: usize) -> Error {
    Error::new(
        ErrorKind::Device,
        format!("expected {n_bytes} bytes of memory for the buffers of a rank, found less"),
    )
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The arenas of the ranks of this process, indexed by the ranks' numbers in the mesh.
#[derive(Clone)]
pub(crate) struct Arenas {
    first: usize,
    arenas: Arc<[Arena]>,
}

impl Arenas {
    /// Allocates an arena of this size for each of these ranks.
    pub(crate) fn new(ranks: Range<usize>, n_bytes: usize) -> Result<Self, Error> {
        let first = ranks.start;
        let arenas: Result<Vec<Arena>, Error> = ranks.map(|_| Arena::new(n_bytes)).collect();
        Ok(Self { first, arenas: arenas?.into() })
    }

    /// Returns the ranks of this process.
    pub(crate) fn ranks(&self) -> Range<usize> {
        self.first..self.first + self.arenas.len()
    }
}

impl Index<usize> for Arenas {
    type Output = Arena;

    fn index(&self, rank: usize) -> &Arena {
        &self.arenas[rank - self.first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_that_do_not_fit_are_errors() {
        for n_bytes in [1 << 55, usize::MAX] {
            let error = Arenas::new(0..2, n_bytes).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.to_string().contains(&format!("{n_bytes} bytes of memory")), "{error}");
        }
    }
}
