//! The system's allocator with counters. A program that links this crate allocates through it.
#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The alignment of arenas, which no other allocation has.
const ARENA_ALIGNMENT: usize = 64;

/// The bytes that all threads hold, and their peak.
static N_HELD: AtomicUsize = AtomicUsize::new(0);
static MOST_HELD: AtomicUsize = AtomicUsize::new(0);

static N_ARENA_BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST_ARENA: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The bytes that this thread holds, and their peak.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn taken(layout: Layout) {
    N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if layout.align() == ARENA_ALIGNMENT {
        N_ARENA_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        LARGEST_ARENA.fetch_max(layout.size(), Ordering::Relaxed);
    }
    hold(layout.size(), 0);
}

fn hold(more: usize, less: usize) {
    N_HELD.fetch_sub(less, Ordering::Relaxed);
    MOST_HELD.fetch_max(N_HELD.fetch_add(more, Ordering::Relaxed) + more, Ordering::Relaxed);
    // The counter is gone while a thread ends.
    let _ = HELD.try_with(|it| {
        let (held, most) = it.get();
        let held = held.saturating_add(more).saturating_sub(less);
        it.set((held, most.max(held)));
    });
}

// SAFETY: all calls are passed on to the system's allocator, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        hold(size, layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work`; returns its result and the number of allocations that all threads made meanwhile.
pub fn count_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = N_ALLOCATIONS.load(Ordering::Relaxed);
    let given = work();
    (given, N_ALLOCATIONS.load(Ordering::Relaxed) - before)
}

/// Runs `work`; returns its result and the peak of the bytes that this thread allocated meanwhile.
pub fn most_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.set((0, 0));
    let given = work();
    (given, HELD.get().1)
}

/// Runs `work`; returns its result and the peak of the bytes of all threads, less those held
/// before.
pub fn most_of_all_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = N_HELD.load(Ordering::Relaxed);
    MOST_HELD.store(before, Ordering::Relaxed);
    let given = work();
    (given, MOST_HELD.load(Ordering::Relaxed) - before)
}

/// Runs `work`; returns its result, and the bytes of all arenas allocated meanwhile and of the
/// largest.
pub fn arenas_during<T>(work: impl FnOnce() -> T) -> (T, [usize; 2]) {
    N_ARENA_BYTES.store(0, Ordering::Relaxed);
    LARGEST_ARENA.store(0, Ordering::Relaxed);
    let given = work();
    (given, [&N_ARENA_BYTES, &LARGEST_ARENA].map(|it| it.load(Ordering::Relaxed)))
}
