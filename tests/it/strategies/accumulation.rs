//! Steps that share an update: data parallelism moves the gradients once per update, and training
//! is the same as on one device. An update whose total is not finite drops it.

use soybean::{
    Counters,
    runtime::{Array, Trainer},
};
use soybean_compiler::{Compiled, Optimizer, Strategy, optimizer};
use soybean_plan::{Kernel, NonFinite, Program, Step};
use soybean_test_support::models::{Batch, finish, perceptron, perceptron_of, trainer};

use super::{
    assert_close,
    updates::{DEVICES, assert_near, bits, compiled, everything, state, tensors},
};

/// The number of steps that share an update.
const ACCUMULATE: u64 = 8;
/// The largest bytes of all steps of an update, over those of a step that updates alone.
const MOST: f64 = 1.2;

fn accumulating(name: &str) -> Optimizer {
    Optimizer { accumulate: ACCUMULATE, ..optimizer(name, &[]).unwrap() }
}

/// Trains two updates; returns the losses and the bytes that each step moved. Each step moves the
/// predicted bytes.
fn train(compiled: &Compiled, what: &str) -> (Vec<f32>, Vec<u64>) {
    let mut trainer = trainer(compiled, 0.02);
    let step = |trainer: &mut Trainer, index: usize| {
        let predicted = trainer.bytes_of_next_step();
        let loss = trainer.step(&Batch::new(index).views()).unwrap();
        assert_eq!(trainer.moved_bytes(), predicted, "{what}, step {index}");
        assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes, "{what}, step {index}");
        (loss, trainer.moved_bytes())
    };
    (0..2 * usize::try_from(ACCUMULATE).unwrap()).map(|it| step(&mut trainer, it)).unzip()
}

fn n_collectives(program: &Program, steps: &[Step]) -> usize {
    let is_collective = |it: &&Step| program.kernels[it.kernel].transfer().is_some();
    steps.iter().filter(is_collective).count()
}

#[test]
fn data_parallelism_moves_gradients_once_per_update() {
    for method in soybean_compiler::METHODS {
        let of_one =
            train(&perceptron(1, Strategy::Data, accumulating(method.name)), method.name).0;
        for n_gpus in [2, 4, 6, 8] {
            let what = format!("{}, {n_gpus} devices", method.name);
            let every_step = Optimizer { accumulate: 1, ..accumulating(method.name) };
            let alone = perceptron(n_gpus, Strategy::Data, every_step).program;
            let compiled = perceptron(n_gpus, Strategy::Data, accumulating(method.name));
            let (program, plan) = (&compiled.program, &compiled.report);
            let (losses, moved) = train(&compiled, &what);
            for update in moved.chunks(usize::try_from(ACCUMULATE).unwrap()) {
                let counted = update.iter().sum::<u64>();
                assert_eq!(counted, plan.bytes_total, "{what}");
                assert_eq!(counted, plan.search().tiled.bytes(), "{what}");
                let most = MOST * alone.tables.train_bytes() as f64;
                assert!(counted as f64 <= most, "{what}: {counted} bytes, at most {most}");
            }
            // Only the loss is reduced.
            assert_eq!(n_collectives(program, &program.accumulate), 1, "{what}");
            for (found, expected) in losses.iter().zip(&of_one) {
                assert_close(*found, *expected, &what);
            }
        }
    }
}

/// Whatever the tilings are, an update costs no more than if each of its steps moved all gradients.
#[test]
fn plans_of_accumulation_move_no_more_than_steps_that_all_update() {
    for n_gpus in [2, 3, 4, 8, 12] {
        for batch in [8, 24, 96] {
            let bytes = |accumulate| {
                let (builder, loss, outputs) = perceptron_of(batch);
                let optimizer = Optimizer { accumulate, ..Optimizer::default() };
                finish(builder, loss, &outputs, n_gpus, Strategy::Auto, optimizer)
                    .report
                    .bytes_total
            };
            assert!(bytes(ACCUMULATE) <= ACCUMULATE * bytes(1), "{n_gpus} devices, batch {batch}");
        }
    }
}

/// A model with a batch norm, whose buffers change in every step. Without clipping and skips, an
/// accumulating step computes no norm of the gradients.
#[test]
fn updates_with_buffers_are_those_of_one_device() {
    for non_finite in [NonFinite::Stop, NonFinite::Skip, NonFinite::Scale] {
        let optimizer = Optimizer { non_finite, ..accumulating("adamw") };
        let of_one = train(&compiled(1, optimizer.clone()), "one device").0;
        for n_gpus in [2, 4, 8] {
            let what = format!("{non_finite}, {n_gpus} devices");
            let compiled = compiled(n_gpus, optimizer.clone());
            for (found, expected) in train(&compiled, &what).0.iter().zip(&of_one) {
                assert_close(*found, *expected, &what);
            }
            let program = &compiled.program;
            let squares = |steps: &[Step]| {
                let is_root = |it: &&Step| match &program.kernels[it.kernel] {
                    Kernel::Map(map) => map.program.to_string().starts_with("sqrt(x0)"),
                    _ => false,
                };
                steps.iter().filter(is_root).count()
            };
            let has_norm = usize::from(non_finite != NonFinite::Stop);
            assert_eq!(squares(&program.train[0]), has_norm, "{what}");
            assert_eq!(squares(&program.accumulate), 0, "{what}");
        }
    }
}

/// An accumulating step checks its loss alone. The update finds that the total of the gradients is
/// not finite, and drops it.
#[test]
fn totals_that_overflow_are_dropped_and_lower_the_scale() {
    for n_gpus in DEVICES {
        let compiled = compiled(n_gpus, everything());
        let mut plain = trainer(&compiled, 0.02);
        let mut trainer = trainer(&compiled, 0.02);
        let start = trainer.counters();
        trainer.set_counters(Counters { loss_scale: 2.0_f32.powi(127), ..start });
        let mut batch = Batch::new(1);
        batch.x.iter_mut().for_each(|it| *it *= 30.0);
        let (parameters, mut n_dropped) = (bits(trainer.parameters().unwrap()), 0);
        let is_trained = |it: &(String, Vec<u32>)| ["w", "weight", "bias"].contains(&it.0.as_str());
        loop {
            for _ in 0..2 {
                trainer.step(&batch.views()).unwrap();
                assert!(!trainer.was_skipped() && trainer.gradient_norm().is_none());
                assert_eq!(trainer.counters().loss_scale, 2.0_f32.powi(127 - n_dropped));
            }
            trainer.step(&batch.views()).unwrap();
            if !trainer.was_skipped() {
                break;
            }
            n_dropped += 1;
            let counters = trainer.counters();
            assert_eq!((counters.n_updates, counters.n_accumulated), (0, 0));
            assert_eq!(counters.loss_scale, 2.0_f32.powi(127 - n_dropped));
            assert!(!trainer.gradient_norm().unwrap().is_finite());
            let found = bits(trainer.parameters().unwrap());
            let pairs = found.iter().zip(&parameters);
            assert!(pairs.filter(|it| is_trained(it.0)).all(|(one, other)| one == other));
            for (name, values) in trainer.optimizer_state().unwrap() {
                assert!(values.data.iter().all(|it| *it == 0.0), "{name}");
            }
        }
        assert!(n_dropped > 0);
        for _ in 0..3 {
            plain.step(&batch.views()).unwrap();
        }
        let [scaled, plain] = [&mut trainer, &mut plain].map(|it| {
            let found = it.parameters().unwrap().into_iter();
            let is_trained = |it: &(String, Array)| !["mean", "var"].contains(&it.0.as_str());
            tensors(found.filter(is_trained).collect())
        });
        assert_near(&scaled, &plain, &format!("{n_gpus} devices"));
    }
}

#[test]
fn a_hundred_skipped_updates_in_a_row_are_an_error() {
    let optimizer = Optimizer { non_finite: NonFinite::Skip, ..everything() };
    let mut trainer = trainer(&perceptron(1, Strategy::Auto, optimizer), 0.02);
    // The loss is finite, but the square of the gradients is not.
    let mut batch = Batch::new(1);
    batch.x.iter_mut().for_each(|it| *it *= 1e25);
    for step in 1..300 {
        assert!(trainer.step(&batch.views()).unwrap().is_finite());
        assert_eq!(trainer.was_skipped(), step % 3 == 0);
    }
    let error = trainer.step(&batch.views()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected finite gradients, found that the norm of the gradients is infinite in step 300 (learning rate 0.02), and 100 updates in a row were skipped"
    );
    assert_eq!(trainer.counters().n_accumulated, 0);
}

/// Only the first batches of each update have gradients whose squares overflow, and the update sets
/// their sum to zero when it drops it.
#[test]
fn the_inspection_after_dropped_updates_looks_at_what_was_dropped() {
    for n_gpus in [1, 4] {
        let optimizer = Optimizer { non_finite: NonFinite::Skip, ..everything() };
        let compiled = perceptron(n_gpus, Strategy::Auto, optimizer);
        let mut trainer = trainer(&compiled, 0.02);
        let small = Batch::new(1);
        let mut large = Batch::new(1);
        large.x.iter_mut().for_each(|it| *it *= 1e25);
        for step in 1..300 {
            let batch = if step % 3 == 0 { &small } else { &large };
            assert!(trainer.step(&batch.views()).unwrap().is_finite());
        }
        trainer.step(&small.views()).unwrap_err();
        let (before, counters) = (state(&mut trainer), trainer.counters());
        // A second look finds the same.
        for _ in 0..2 {
            let found = trainer.inspect_step(&small.views()).unwrap();
            let name = found.first().and_then(|it| compiled.report.value_of_buffer(it.buffer));
            let name = name.map(|it| compiled.report.names()[&it].clone());
            assert!(name.is_some_and(|it| it.ends_with("square_sum")), "{n_gpus}: {found:?}");
        }
        assert_eq!(state(&mut trainer), before);
        assert_eq!(trainer.counters(), counters);
    }
}
