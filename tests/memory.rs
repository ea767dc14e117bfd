//! Predicted memory is what the runtime allocates, with and without a limit, and a save holds as
//! much as its documentation says.
#![expect(unsafe_code, reason = "tests vouch for their programs")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use soybean::{
    Config, Device,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    runtime::Trainer,
};
use soybean_compiler::{Options, SearchRequest, Strategy};
use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, DType, Executable, ImageLayout, Init, Parameter, Precision, Shape,
    Tile, Tiling,
};
use soybean_test_support::models::{BATCH, Batch, finish_with, perceptron, perceptron_model, sgd};

/// One test at a time, so that no other allocates.
static ALONE: Mutex<()> = Mutex::new(());

/// Adds parameters of these lengths that no kernel uses.
fn enlarged(program: Executable, lengths: impl Iterator<Item = usize>) -> Executable {
    let mut program = program.into_program();
    let tables = &mut program.tables;
    for (number, n_elements) in lengths.enumerate() {
        let (offset, buffer) = (tables.arena_bytes, tables.buffers.len());
        tables.arena_bytes += (4 * n_elements).next_multiple_of(BUFFER_ALIGNMENT);
        tables.buffers.to_mut().push(Buffer { offset, n_elements, dtype: DType::F32 });
        tables.parameters.to_mut().push(Parameter {
            name: format!("more.{number}").into(),
            tile: Tile::new(Shape::new(&[n_elements]), Tiling::replicated(0)),
            layout: ImageLayout::ChannelsFirst,
            buffer,
            init: Init::Constant(0.5),
            is_trained: false,
            use_hash: 0,
        });
    }
    // SAFETY: the steps are those of the compiler's program.
    unsafe { Executable::new(program) }
}

/// Two tensors of this length exceed the limit of bytes that are fetched at once.
const LARGE: usize = (2 << 20) + 1;

#[test]
fn a_save_holds_four_tensors_at_a_time() {
    let _alone = ALONE.lock().expect("no test panics");
    let program = perceptron(1, Strategy::Auto, sgd(0.0)).program;
    let program = enlarged(program, (0..44).map(|it| if it < 36 { 1 } else { LARGE }));
    let config = Config { device: Device::Cpu, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(program), config).expect("sound");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("held");
    let _not_there = fs::remove_dir_all(&folder);
    let mut checkpoints = Checkpoints::new(&folder, 1);
    let save = || checkpoints.save(&mut trainer, &Progress::default()).expect("saved");
    let (path, n_bytes) = soybean_counting_allocator::most_of_all_during(save);
    assert!(n_bytes < 5 * 4 * LARGE, "{n_bytes}");
    let checkpoint = Checkpoint::open(path).expect("whole");
    let restore = || trainer.restore(&checkpoint).expect("fits");
    let (_, n_bytes) = soybean_counting_allocator::most_of_all_during(restore);
    assert!(n_bytes < 2 * 4 * LARGE, "{n_bytes}");
    fs::remove_dir_all(folder).expect("there");
}

#[test]
fn the_runtime_allocates_what_the_plan_predicts() {
    let _alone = ALONE.lock().expect("no test panics");
    let batch = Batch::new(0);
    assert_eq!(batch.y.len(), BATCH);
    let config = Config { device: Device::Cpu, ..Config::default() };
    for n_gpus in [2, 4, 6] {
        let plan = |memory: Option<u64>| {
            let (builder, loss, outputs) = perceptron_model();
            let (name, precision, optimizer) = ("model".to_owned(), Precision::F32, sgd(0.9));
            let search = SearchRequest { memory, ..SearchRequest::default() };
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
            let (mut trainer, allocated) = soybean_counting_allocator::arenas_during(start);
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
