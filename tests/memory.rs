//! What a plan predicts of memory is what the runtime allocates, with a limit and without one.

#[path = "support/allocations.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod allocations;
#[path = "support/models.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod models;

use std::sync::Arc;

use models::{BATCH, Batch, finish_with, perceptron_model, sgd};
use soybean::{Config, Device, runtime::Trainer};
use soybean_compiler::{Options, Request};
use soybean_plan::Precision;

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
            let start = || Trainer::new_shared(program, config.clone()).expect("sound");
            let (mut trainer, allocated) = allocations::arenas_during(start);
            let predicted = usize::try_from(predicted).expect("small");
            assert_eq!(allocated, [n_gpus * predicted, predicted], "{n_gpus}");
            losses.push((0..3).map(|_| trainer.step(&batch.views()).expect("runs")).last());
        }
        let [Some(first), others @ ..] = &losses[..] else { unreachable!("three plans ran") };
        for loss in others.iter().flatten() {
            assert!((loss - first).abs() < 1e-4, "{n_gpus}: {losses:?}");
        }
    }
}
