//! Gradients for the host: those of plain loops in double precision, on any number of devices.

use soybean::runtime::{Array, ErrorKind, Trainer};
use soybean_compiler::{Group, Optimizer, Strategy, optimizer};
use soybean_plan::NonFinite;
use soybean_test_support::models::{Batch, perceptron, sgd, trainer};

use super::{
    plain::{Tensors, gradients_with_input, norm},
    updates::{DEVICES, assert_near, tensors},
};

fn kept() -> Optimizer {
    optimizer("gradients", &[]).unwrap()
}

fn with_input() -> Optimizer {
    Optimizer { input_gradients: vec!["x".to_owned()], ..kept() }
}

/// Returns the mean gradients of some batches, clipped, with that of `x` for the last batch.
fn expected(optimizer: &Optimizer, parameters: &Tensors, batches: &[Batch]) -> (Tensors, Vec<f64>) {
    let mut mean: Tensors = parameters.iter().map(|it| vec![0.0; it.len()]).collect();
    let mut of_input = Vec::new();
    for batch in batches {
        let (gradients, of_x, _) = gradients_with_input(parameters, batch);
        for (mean, gradient) in mean.iter_mut().flatten().zip(gradients.iter().flatten()) {
            *mean += gradient / batches.len() as f64;
        }
        of_input = of_x;
    }
    let limit = optimizer.clip_norm.unwrap_or(f64::INFINITY);
    let factor = (limit / (norm(&mean) + 1e-6)).min(1.0);
    mean.iter_mut().flatten().for_each(|it| *it *= factor);
    (mean, of_input)
}

/// Compares the gradients of one update, from the parameters at the start. They have single
/// precision, and are below 1.
fn check(optimizer: &Optimizer) {
    let n_steps = usize::try_from(optimizer.accumulate).unwrap();
    let batches: Vec<Batch> = (0..n_steps).map(Batch::new).collect();
    for n_gpus in DEVICES {
        for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
            let what = format!("{n_gpus} devices, {strategy:?}, {optimizer:?}");
            let compiled = perceptron(n_gpus, strategy, optimizer.clone());
            let mut trainer = trainer(&compiled, 0.05);
            let start = trainer.parameters().unwrap();
            let parameters = tensors(start.clone());
            let (of_parameters, of_input) = expected(optimizer, &parameters, &batches);
            for batch in &batches {
                let predicted = trainer.bytes_of_next_step();
                trainer.step(&batch.views()).unwrap();
                assert_eq!(trainer.moved_bytes(), predicted, "{what}");
            }
            assert!(trainer.parameters().unwrap() == start, "{what}");
            let mut found = trainer.gradients().unwrap();
            if !optimizer.input_gradients.is_empty() {
                let (name, of_x) = found.remove(0);
                assert_eq!(name, "x");
                let alone = trainer.gradient("x").unwrap();
                assert_eq!(alone, of_x);
                assert_near(&tensors(vec![(name, of_x)]), &vec![of_input], &what);
            }
            let names: Vec<&String> = found.iter().map(|it| &it.0).collect();
            assert_eq!(names, start.iter().map(|it| &it.0).collect::<Vec<_>>(), "{what}");
            assert_near(&tensors(found), &of_parameters, &what);
        }
    }
}

#[test]
fn gradients_are_those_of_plain_loops() {
    check(&kept());
    check(&with_input());
}

#[test]
fn gradients_are_clipped_averaged_and_without_the_scale() {
    check(&Optimizer { clip_norm: Some(0.1), ..with_input() });
    check(&Optimizer { non_finite: NonFinite::Scale, ..with_input() });
    check(&Optimizer { accumulate: 3, clip_norm: Some(0.1), ..kept() });
}

/// Replaces each parameter with a kept gradient by `p - rate g`.
fn descend(trainer: &mut Trainer, rate: f32) {
    for (name, gradient) in trainer.gradients().unwrap() {
        let mut parameter = trainer.parameter(&name).unwrap();
        parameter.data.iter_mut().zip(&gradient.data).for_each(|(p, g)| *p -= rate * g);
        trainer.set_parameter(&name, &parameter).unwrap();
    }
}

#[test]
fn a_loop_of_ones_own_trains_as_sgd_does() {
    const RATE: f32 = 0.05;
    let rule = kept().rule;
    let biases = vec![Group::new("*.b".to_owned(), rule, 1.0).unwrap()];
    for n_gpus in DEVICES {
        for optimizer in [kept(), Optimizer { groups: biases.clone(), ..sgd(0.0) }] {
            let mut by_hand = trainer(&perceptron(n_gpus, Strategy::Auto, optimizer), RATE);
            let mut built_in = trainer(&perceptron(n_gpus, Strategy::Auto, sgd(0.0)), RATE);
            for step in 0..12 {
                let batch = Batch::new(step);
                let losses = [&mut by_hand, &mut built_in].map(|it| it.step(&batch.views()));
                let [one, other] = losses.map(Result::unwrap);
                assert!((one - other).abs() <= 1e-5, "{n_gpus} devices: {one}, {other}");
                descend(&mut by_hand, RATE);
            }
            let [found, expected] = [by_hand, built_in].map(|mut it| it.parameters().unwrap());
            assert_near(&tensors(found), &tensors(expected), &format!("{n_gpus} devices"));
        }
    }
}

/// All parameters may be frozen if the gradient of an input is what is wanted. A step that is not
/// finite keeps the gradient before it.
#[test]
fn inputs_have_gradients_in_frozen_models_and_in_trained_ones() {
    let input_gradients = vec!["x".to_owned()];
    let frozen = Optimizer { freeze: vec!["*".to_owned()], ..with_input() };
    let trained = Optimizer { input_gradients, ..sgd(0.9) };
    for non_finite in NonFinite::ALL {
        for optimizer in [&frozen, &trained] {
            let optimizer = Optimizer { non_finite, ..optimizer.clone() };
            for n_gpus in DEVICES {
                let what = format!("{n_gpus} devices, {optimizer:?}");
                let mut trainer =
                    trainer(&perceptron(n_gpus, Strategy::Auto, optimizer.clone()), 0.05);
                let parameters = tensors(trainer.parameters().unwrap());
                let batch = Batch::new(3);
                trainer.step(&batch.views()).unwrap();
                let expected = gradients_with_input(&parameters, &batch).1;
                let found = trainer.gradients().unwrap();
                assert_eq!(found.len(), 1, "{what}");
                assert_near(&tensors(found.clone()), &vec![expected], &what);
                let mut infinite = Batch::new(4);
                infinite.x[0] = f32::INFINITY;
                let stepped = trainer.step(&infinite.views());
                assert_eq!(stepped.is_err(), non_finite == NonFinite::Stop, "{what}");
                assert_eq!(trainer.gradients().unwrap(), found, "{what}");
            }
        }
    }
}

#[test]
fn wrong_names_and_shapes_are_errors() {
    let mut it = trainer(&perceptron(2, Strategy::Auto, kept()), 0.05);
    let message = |error: soybean::Error| {
        assert_eq!(error.kind(), ErrorKind::Parameters);
        error.to_string()
    };
    let error = message(it.gradient("x").unwrap_err());
    assert!(error.starts_with("expected a gradient of first.w, first.b, "), "{error}");
    assert!(error.ends_with(", found `x`"), "{error}");
    let error = message(it.parameter("first").unwrap_err());
    assert!(error.starts_with("expected one of the parameters first.w, "), "{error}");
    let wrong = Array { shape: vec![2], data: vec![0.0; 2], ..Array::default() };
    let error = message(it.set_parameter("first.b", &wrong).unwrap_err());
    assert!(error.contains("found [2] with 2 elements"), "{error}");
    let mut plain = trainer(&perceptron(2, Strategy::Auto, sgd(0.0)), 0.05);
    for error in [plain.gradients().unwrap_err(), plain.gradient("first.w").unwrap_err()] {
        let error = message(error);
        assert!(error.contains("expected a model that keeps gradients"), "{error}");
    }
}
