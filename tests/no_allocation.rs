//! A training step allocates nothing, on any rank.

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

use models::{Batch, finish_with, perceptron_model, sgd};
use soybean::{Config, Device, runtime::Trainer};
use soybean_compiler::{Options, Strategy};
use soybean_plan::Precision;

/// The system's allocator, counting.
struct Counting;

static N_ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        N_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_allocate_nothing() {
    const N_STEPS: usize = 5;
    let batch = Batch::new(0);
    let views = batch.views();
    let config = Config { device: Device::Cpu, ..Config::default() };
    let cases = [1, 2, 6, 8].map(|it| (it, Precision::F32));
    for (n_gpus, precision) in cases.into_iter().chain([(4, Precision::Bf16)]) {
        let (builder, loss, outputs) = perceptron_model();
        let (name, strategy, optimizer) = ("model".to_owned(), Strategy::Auto, sgd(0.9));
        let options = Options { name, n_gpus, search: strategy.into(), precision, optimizer };
        let program = finish_with(builder, loss, &outputs, &options).program;
        let mut trainer = Trainer::new_shared(Arc::new(program), config.clone()).expect("sound");
        for _ in 0..3 {
            trainer.step(&views).expect("warms up");
        }
        let before = N_ALLOCATIONS.load(Ordering::Relaxed);
        let losses: [f32; N_STEPS] =
            std::array::from_fn(|_| trainer.step(&views).unwrap_or(f32::NAN));
        let n_allocations = N_ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert_eq!(n_allocations, 0, "{n_gpus} devices");
    }
}
