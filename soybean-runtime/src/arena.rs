//! The one block of memory of a rank.
#![expect(unsafe_code, reason = "ranks read each other's memory, which references cannot express")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Index, Range},
    ptr::NonNull,
    sync::Arc,
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

    /// Where the memory begins.
    pub(crate) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The arenas of the ranks of this process, by their numbers in the mesh.
#[derive(Clone)]
pub(crate) struct Arenas {
    first: usize,
    arenas: Arc<[Arena]>,
}

impl Arenas {
    /// An arena of this size for each of these ranks.
    pub(crate) fn new(ranks: Range<usize>, n_bytes: usize) -> Result<Self, Error> {
        let first = ranks.start;
        let arenas: Result<Vec<Arena>, Error> = ranks.map(|_| Arena::new(n_bytes)).collect();
        Ok(Self { first, arenas: arenas?.into() })
    }

    /// The ranks of this process.
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
