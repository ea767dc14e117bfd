//! What a plan predicts of memory is what the runtime allocates, with a limit and without one.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

#[path = "support/models.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod models;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use models::{BATCH, Batch, finish_with, perceptron_model, sgd};
use soybean::{Config, Device, runtime::Trainer};
use soybean_compiler::{Options, Request};
use soybean_plan::Precision;

/// The system's allocator, which counts what it gives in blocks aligned for vectors: the arenas.
struct Counting;

/// The alignment of arenas.
const ALIGNMENT: usize = 64;

static N_BYTES: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == ALIGNMENT {
            N_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
            LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_runtime_allocates_what_the_plan_predicts() {
    let batch = Batch::new(0);
    assert_eq!(batch.y.len(), BATCH);
    let config = Config { device: Device::Cpu, ..Config::default() };
    for n_gpus in [2, 4, 6] {
        let plan = |memory: Option<u64>| {
            let (builder, loss, outputs) = perceptron_model();
            let (name, precision, optimizer) = ("model".to_owned(), Precision::F32, sgd(0.9));
            let search = Request { memory, ..Request::default() };
            let options = Options { name, n_gpus, search, precision, optimizer };
            finish_with(builder, loss, &outputs, &options)
        };
        let free = plan(None).report.peak_memory_bytes_per_gpu;
        let mut losses = Vec::new();
        for limit in [None, Some(free), Some(free - free / 20)] {
            let compiled = plan(limit);
            let predicted = compiled.report.peak_memory_bytes_per_gpu;
            assert!(limit.is_none_or(|limit| predicted <= limit), "{n_gpus}: {limit:?}");
            let program = Arc::new(compiled.program);
            let before = N_BYTES.swap(0, Ordering::Relaxed);
            LARGEST.store(0, Ordering::Relaxed);
            let mut trainer = Trainer::new_shared(program, config.clone()).expect("sound");
            let allocated = (N_BYTES.load(Ordering::Relaxed), LARGEST.load(Ordering::Relaxed));
            let predicted = usize::try_from(predicted).expect("small");
            assert_eq!(allocated, (n_gpus * predicted, predicted), "{n_gpus}: after {before}");
            losses.push((0..3).map(|_| trainer.step(&batch.views()).expect("runs")).last());
        }
        let [Some(first), others @ ..] = &losses[..] else { unreachable!("three plans ran") };
        for loss in others.iter().flatten() {
            assert!((loss - first).abs() < 1e-4, "{n_gpus}: {losses:?}");
        }
    }
}
