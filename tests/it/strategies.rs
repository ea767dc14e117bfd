//! One model on 1 to 32 devices under every strategy: the same training, and exactly the predicted
//! bytes.

mod accumulation;
mod counted;
mod gradients;
mod norm;
mod plain;
mod stopped;
mod updates;

use soybean::{
    Tensor,
    eager::{self, param, zeros},
    runtime::{Array, Trainer},
};
use soybean_compiler::{
    Argument, Compiled, Optimizer, Options, SearchRequest, Strategy, graph::Source, optimizer,
};
use soybean_plan::Precision;
use soybean_test_support::models::{self, BATCH, Batch, FEATURES, perceptron, sgd, trainer};

const DEVICES: [usize; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 12];
const LEARNING_RATE: f32 = 0.05;

fn strategies() -> impl Iterator<Item = (&'static str, Strategy)> {
    ["auto", "recursive", "data", "model"].into_iter().map(|name| (name, name.parse().unwrap()))
}

/// Trains 20 steps; returns the loss and the moved bytes of each. Each step feeds the bytes that
/// the plan reports.
fn train(compiled: &Compiled, learning_rate: f32) -> Vec<(f32, u64)> {
    let mut trainer = trainer(compiled, learning_rate);
    let step = |index| {
        let loss = trainer.step(&Batch::new(index).views()).unwrap();
        assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes);
        (loss, trainer.moved_bytes())
    };
    (0..20).map(step).collect()
}

/// Single precision rounds at 6e-8. Sums of some dozen terms in another order and 20 steps of
/// training stay far below 1e-4.
fn assert_close(found: f32, expected: f32, what: &str) {
    let difference = (found - expected).abs() / expected.abs();
    assert!(difference <= 1e-4, "{what}: expected {expected}, found {found}");
}

fn check(optimizer: &Optimizer, learning_rate: f32) {
    check_on(&DEVICES, optimizer, learning_rate);
}

fn check_on(devices: &[usize], optimizer: &Optimizer, learning_rate: f32) {
    let expected = train(&perceptron(1, Strategy::Auto, optimizer.clone()), learning_rate);
    for &n_gpus in devices {
        for (name, strategy) in strategies() {
            let compiled = perceptron(n_gpus, strategy, optimizer.clone());
            let found = train(&compiled, learning_rate);
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let what = format!("{n_gpus} devices, {name}, step {step}");
                assert_close(found.0, expected.0, &what);
                assert_eq!(found.1, compiled.program.tables.train_bytes(), "{what}: bytes");
            }
        }
    }
}

#[test]
fn so_it_is_on_a_mesh_of_five_axes() {
    check_on(&[32], &Optimizer::default(), LEARNING_RATE);
}

#[test]
fn plain_sgd_is_the_same_everywhere() {
    check(&Optimizer::default(), LEARNING_RATE);
}

#[test]
fn momentum_is_the_same_everywhere() {
    check(&sgd(0.9), LEARNING_RATE);
}

#[test]
fn adamw_is_the_same_everywhere() {
    check(&optimizer("adamw", &[]).unwrap(), 0.003);
}

/// Compiles the perceptron with every parameter partitioned over all devices, where possible.
fn perceptron_in_parts(n_gpus: usize, shares: bool) -> Compiled {
    let (mut builder, loss, outputs) = models::perceptron_model();
    for value in builder.graph().values() {
        let node = builder.graph().node(value);
        let is_divisible = node.shape.first().is_some_and(|it| it.is_multiple_of(n_gpus));
        if is_divisible && matches!(node.source, Source::Parameter(_)) {
            let arguments = [Argument::Tensor(value), Argument::Text("P0".to_owned())];
            models::call(&mut builder, "tiled", &arguments);
        }
    }
    let options = Options {
        name: "parts".to_owned(),
        n_gpus,
        search: SearchRequest { shares, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: sgd(0.9),
    };
    models::finish_with(builder, loss, &outputs, &options)
}

#[test]
fn weights_in_parts_train_alike_with_and_without_copies() {
    let expected = train(&perceptron(1, Strategy::Auto, sgd(0.9)), LEARNING_RATE);
    for n_gpus in DEVICES {
        let [own, shared] = [false, true].map(|shares| perceptron_in_parts(n_gpus, shares));
        assert!(shared.program.tables.train_bytes() <= own.program.tables.train_bytes());
        for compiled in [own, shared] {
            for (found, expected) in train(&compiled, LEARNING_RATE).iter().zip(&expected) {
                assert_close(found.0, expected.0, &format!("{n_gpus} devices"));
                assert_eq!(found.1, compiled.program.tables.train_bytes());
            }
        }
    }
}

#[test]
fn evaluations_move_the_predicted_bytes_and_give_the_same_logits() {
    let batch = Batch::new(0);
    let expected =
        trainer(&perceptron(1, Strategy::Auto, sgd(0.0)), 0.1).evaluate(&batch.views()).unwrap();
    for n_gpus in DEVICES {
        for (name, strategy) in strategies() {
            let compiled = perceptron(n_gpus, strategy, sgd(0.0));
            let mut trainer = trainer(&compiled, 0.1);
            let found = trainer.evaluate(&batch.views()).unwrap();
            let what = format!("{n_gpus} devices, {name}");
            assert_eq!(trainer.moved_bytes(), compiled.program.tables.entries[0].bytes, "{what}");
            assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes, "{what}");
            assert_close(found.loss, expected.loss, &what);
            for (found, expected) in found.outputs[0].data.iter().zip(&expected.outputs[0].data) {
                assert!((found - expected).abs() < 1e-4, "{what}: {found}, {expected}");
            }
        }
    }
}

/// The perceptron as eager code.
fn eager_loss(batch: &Batch, parameters: &[(Vec<usize>, Vec<f64>)]) -> f64 {
    let wide = |numbers: &[f32]| numbers.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
    let labels: Vec<f64> = batch.y.iter().map(|it| f64::from(*it)).collect();
    let dense = |x: Tensor, units: usize| {
        x.matmul(param("w", [units, x.dim(1)], zeros()).transpose()) + param("b", [units], zeros())
    };
    eager::scope(|| {
        let values: Vec<Tensor> =
            parameters.iter().map(|(shape, data)| Tensor::new(shape, data)).collect();
        let (x, y) =
            (Tensor::new([BATCH, FEATURES], &wide(&batch.x)), Tensor::new([BATCH], &labels));
        eager::with_parameters(&values, || {
            let first = dense(x, models::HIDDEN).relu();
            let second = dense(first, models::HIDDEN).relu();
            dense(second, models::CLASSES).cross_entropy(y).item()
        })
    })
}

fn eager_parameters(trainer: &mut Trainer) -> Vec<(Vec<usize>, Vec<f64>)> {
    let wide = |array: Array| (array.shape, array.data.into_iter().map(f64::from).collect());
    trainer.parameters().unwrap().into_iter().map(|(_, array)| wide(array)).collect()
}

/// Returns the parameters after one step of gradient descent, with the gradient by central
/// differences.
fn updated_by_hand(
    batch: &Batch,
    before: &[(Vec<usize>, Vec<f64>)],
) -> Vec<(Vec<usize>, Vec<f64>)> {
    const DISTANCE: f64 = 1e-5;
    let mut probe = before.to_vec();
    let mut after = before.to_vec();
    for parameter in 0..before.len() {
        for element in 0..before[parameter].1.len() {
            let here = before[parameter].1[element];
            let mut loss_at = |value| {
                probe[parameter].1[element] = value;
                eager_loss(batch, &probe)
            };
            let slope = (loss_at(here + DISTANCE) - loss_at(here - DISTANCE)) / (2.0 * DISTANCE);
            probe[parameter].1[element] = here;
            after[parameter].1[element] = here - f64::from(LEARNING_RATE) * slope;
        }
    }
    after
}

#[test]
fn the_first_steps_are_those_of_the_eager_function() {
    let batch = Batch::new(0);
    let mut expected = None;
    for n_gpus in DEVICES {
        for (name, strategy) in strategies() {
            let mut trainer = trainer(&perceptron(n_gpus, strategy, sgd(0.0)), LEARNING_RATE);
            let before = eager_parameters(&mut trainer);
            let (start, after) =
                expected.get_or_insert_with(|| (before.clone(), updated_by_hand(&batch, &before)));
            let what = format!("{n_gpus} devices, {name}");
            assert_eq!(
                *start, before,
                "{what}: parameters are drawn the same on any number of devices"
            );
            let loss = f64::from(trainer.step(&batch.views()).unwrap());
            let difference = (loss - eager_loss(&batch, &before)).abs() / loss;
            assert!(difference < 1e-5, "{what}: loss off by {difference}");
            for (found, expected) in eager_parameters(&mut trainer).iter().zip(after.iter()) {
                for (found, expected) in found.1.iter().zip(&expected.1) {
                    assert!((found - expected).abs() < 1e-6, "{what}: {found}, {expected}");
                }
            }
        }
    }
}
