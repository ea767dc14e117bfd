//! How much memory a thread takes.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// The bytes that this thread holds, and the most that it held.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(taken: usize, given: usize) {
    // While a thread ends there is nothing left to count with.
    let _ = HELD.try_with(|it| {
        let (held, most) = it.get();
        let held = held.saturating_add(taken).saturating_sub(given);
        it.set((held, most.max(held)));
    });
}

// SAFETY: all memory comes from the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What `work` gives, and the most bytes that it held at once.
pub(crate) fn most_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.set((0, 0));
    let given = work();
    (given, HELD.get().1)
}
