//! Clipping, accumulation, averages and skipped steps: any number of devices gives the results of
//! plain loops, with exactly the predicted bytes.

use std::sync::Arc;

use soybean::{
    Config, Counters,
    runtime::{Array, ErrorKind, Trainer},
};
use soybean_compiler::{Argument, Builder, Compiled, Group, Optimizer, Strategy, Value, optimizer};
use soybean_plan::{DType, Init, NonFinite};

use soybean_test_support::models::{
    BATCH, Batch, CLASSES, FEATURES, SEED, call, finish, numbers, perceptron, perceptron_of,
    single, trainer,
};

use super::{
    assert_close,
    plain::{Stepper, Tensors, gradients, norm},
};

// The extents of some parameters lack a factor for 8, so several ranks hold the same gradients.
pub(super) const DEVICES: [usize; 5] = [1, 2, 4, 6, 8];
/// Between the norms of the gradients at the start and at the end, so that some updates are clipped
/// and others are not.
const CLIP_NORM: f64 = 0.8;

pub(super) fn everything() -> Optimizer {
    let betas = Argument::List([0.9, 0.99].map(Argument::Float).into());
    // Large enough that gradients near 0, and their rounding, are not amplified.
    let (eps, decay) = (Argument::Float(1e-3), Argument::Float(0.1));
    let settings = [("betas", betas), ("eps", eps), ("weight_decay", decay)];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let adamw = optimizer("adamw", &settings).unwrap();
    Optimizer {
        no_decay: vec!["*.b".to_owned(), "first*".to_owned()],
        clip_norm: Some(CLIP_NORM),
        accumulate: 3,
        ema: Some(0.9),
        non_finite: NonFinite::Scale,
        ..adamw
    }
}

pub(super) fn tensors(arrays: Vec<(String, Array)>) -> Tensors {
    let wide = |(_, array): (String, Array)| array.data.into_iter().map(f64::from).collect();
    arrays.into_iter().map(wide).collect()
}

/// The results of training by plain loops.
struct Expected {
    losses: Vec<f64>,
    /// The norm of each update's gradient.
    norms: Vec<f64>,
    parameters: Tensors,
    averages: Tensors,
}

/// Runs a step for each batch from these parameters, with the optimizer's settings.
fn by_plain_loops(
    optimizer: &Optimizer,
    rate: f64,
    start: &[(String, Array)],
    batches: &[Batch],
) -> Expected {
    let mut parameters = tensors(start.to_vec());
    let is_decayed = start.iter().map(|(name, _)| {
        let is_bias = name.ends_with(".b");
        optimizer.no_decay.is_empty() || !(is_bias || name.starts_with("first"))
    });
    let frozen: Vec<usize> =
        (0..start.len()).filter(|it| !optimizer.trains(&start[*it].0)).collect();
    let rule = |name: &str| match &optimizer.groups[..] {
        [group, _] if name.starts_with("first") => (group.rule.clone(), 2.0 * rate),
        [_, group] if name.ends_with(".b") => (group.rule.clone(), rate),
        _ => (optimizer.rule.clone(), rate),
    };
    let rules = start.iter().map(|it| rule(&it.0)).collect();
    let mut stepper = Stepper::new(rules, is_decayed.collect(), &parameters);
    let decay = optimizer.ema.unwrap_or(0.0);
    let mut averages: Tensors = stepper.first.clone();
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    let n = usize::try_from(optimizer.accumulate).unwrap();
    for group in batches.chunks_exact(n) {
        let mut mean: Tensors = parameters.iter().map(|it| vec![0.0; it.len()]).collect();
        for batch in group {
            let (gradients, loss) = gradients(&parameters, batch);
            losses.push(loss);
            for (mean, gradient) in mean.iter_mut().flatten().zip(gradients.iter().flatten()) {
                *mean += gradient / n as f64;
            }
        }
        for &it in &frozen {
            mean[it].fill(0.0);
        }
        norms.push(norm(&mean));
        let limit = optimizer.clip_norm.unwrap_or(f64::INFINITY);
        let factor = (limit / (norm(&mean) + 1e-6)).min(1.0);
        mean.iter_mut().flatten().for_each(|it| *it *= factor);
        let before = parameters.clone();
        stepper.update(&mut parameters, &mean);
        for &it in &frozen {
            parameters[it].clone_from(&before[it]);
        }
        for (average, parameter) in averages.iter_mut().flatten().zip(parameters.iter().flatten()) {
            *average = decay * *average + (1.0 - decay) * parameter;
        }
    }
    let weight = 1.0 - decay.powi(stepper.n_updates);
    averages.iter_mut().flatten().for_each(|it| *it /= weight);
    Expected { losses, norms, parameters, averages }
}

/// Parameters are of size 1, and each of some dozen updates rounds them to single precision.
pub(super) fn assert_near(found: &Tensors, expected: &Tensors, what: &str) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}, tensor {at}");
        for (found, expected) in found.iter().zip(expected) {
            let difference = (found - expected).abs();
            assert!(difference <= 2e-5, "{what}, tensor {at}: expected {expected}, found {found}");
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "losses are in single precision")]
fn check(optimizer: &Optimizer, rate: f32, n_steps: usize) -> Expected {
    let batches: Vec<Batch> = (0..n_steps).map(Batch::new).collect();
    let mut expected = None;
    for n_gpus in DEVICES {
        for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
            let what = format!("{n_gpus} devices, {strategy:?}");
            let compiled = perceptron(n_gpus, strategy, optimizer.clone());
            let mut trainer = trainer(&compiled, rate);
            let start = trainer.parameters().unwrap();
            let expected = &*expected.get_or_insert_with(|| {
                by_plain_loops(optimizer, f64::from(rate), &start, &batches)
            });
            let mut norms = Vec::new();
            for (batch, loss) in batches.iter().zip(&expected.losses) {
                let predicted = trainer.bytes_of_next_step();
                let found = trainer.step(&batch.views()).unwrap();
                assert_close(found, *loss as f32, &what);
                assert_eq!(trainer.moved_bytes(), predicted, "{what}");
                assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes, "{what}");
                norms.extend(trainer.gradient_norm());
            }
            assert_eq!(
                norms.is_empty(),
                compiled.program.tables.gradient_norm().is_none(),
                "{what}"
            );
            for (found, expected) in norms.iter().zip(&expected.norms) {
                assert_close(*found, *expected as f32, &what);
            }
            assert_near(&tensors(trainer.parameters().unwrap()), &expected.parameters, &what);
            if optimizer.ema.is_some() {
                let averages = tensors(trainer.averaged_parameters().unwrap());
                assert_near(&averages, &expected.averages, &what);
            }
            let counters = trainer.counters();
            let n_updates = n_steps as u64 / optimizer.accumulate;
            assert_eq!((counters.n_steps, counters.n_updates), (n_steps as u64, n_updates));
        }
    }
    expected.unwrap()
}

#[test]
fn adamw_with_everything_is_the_plain_update() {
    let expected = check(&everything(), 0.02, 24);
    let n_clipped = expected.norms.iter().filter(|it| **it > CLIP_NORM).count();
    assert!(0 < n_clipped && n_clipped < expected.norms.len(), "{:?}", expected.norms);
}

/// One group has another optimizer and twice the learning rate; the next one has other settings.
/// Some parameters of the second group belong to the first.
#[test]
fn groups_have_rules_of_their_own() {
    let sgd = optimizer("sgd", &[("momentum".to_owned(), Argument::Float(0.9))]).unwrap().rule;
    let settings = [("eps", 1e-2), ("weight_decay", 0.0)];
    let settings = settings.map(|(name, value)| (name.to_owned(), Argument::Float(value)));
    let adamw = optimizer("adamw", &settings).unwrap().rule;
    let groups = vec![
        Group::new("first*".to_owned(), sgd, 2.0).unwrap(),
        Group::new("*.b".to_owned(), adamw, 1.0).unwrap(),
    ];
    check(&Optimizer { groups, no_decay: Vec::new(), ..everything() }, 0.02, 24);
}

#[test]
fn frozen_parameters_keep_their_values() {
    let freeze = vec!["first*".to_owned(), "*.b".to_owned()];
    let optimizer = Optimizer { freeze, ..everything() };
    check(&optimizer, 0.02, 12);
    for n_gpus in DEVICES {
        let compiled = perceptron(n_gpus, Strategy::Auto, optimizer.clone());
        let tables = &compiled.program.tables;
        let is_trained = |name: &str| name.ends_with(".w") && !name.starts_with("first");
        for parameter in tables.parameters.iter() {
            assert_eq!(parameter.is_trained, is_trained(&parameter.name), "{}", parameter.name);
        }
        // Neither moments nor sums of gradients are kept for them.
        for state in tables.states.iter() {
            let (parameter, _) = state.name.rsplit_once('.').unwrap();
            assert!(is_trained(parameter), "{}", state.name);
        }
        let mut trainer = trainer(&compiled, 0.02);
        let before = bits(trainer.parameters().unwrap());
        for step in 0..6 {
            trainer.step(&Batch::new(step).views()).unwrap();
        }
        for (before, after) in before.iter().zip(bits(trainer.parameters().unwrap())) {
            assert_eq!(*before != after, is_trained(&before.0), "{n_gpus} devices: {}", before.0);
        }
    }
}

#[test]
fn momentum_with_clipping_is_the_plain_update() {
    let nesterov = Argument::Boolean(true);
    let (momentum, decay) = (Argument::Float(0.9), Argument::Float(0.01));
    let settings = [("momentum", momentum), ("nesterov", nesterov), ("weight_decay", decay)];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let nesterov = optimizer("sgd", &settings).unwrap();
    let clipped = Optimizer { clip_norm: Some(CLIP_NORM), ..nesterov };
    check(&clipped, 0.02, 8);
    check(&Optimizer { non_finite: NonFinite::Skip, ..clipped }, 0.02, 8);
}

#[test]
fn sums_over_small_batches_are_those_of_large_ones() {
    const STEPS: usize = 4;
    let whole = |step: usize| {
        let labels = (0..32).map(|it| i32::try_from((it * 7 + step) % CLASSES).unwrap());
        (single(&numbers(32 * FEATURES, step)), labels.collect::<Vec<i32>>())
    };
    let mut losses = Vec::new();
    for (batch, accumulate) in [(32, 1), (8, 4)] {
        let optimizer = Optimizer { accumulate, clip_norm: Some(CLIP_NORM), ..everything() };
        let (builder, loss, outputs) = perceptron_of(batch);
        let compiled = finish(builder, loss, &outputs, 4, Strategy::Auto, optimizer);
        let mut trainer = trainer(&compiled, 0.02);
        for step in 0..STEPS {
            let (x, y) = whole(step);
            let rows = x.chunks(batch * FEATURES).zip(y.chunks(batch));
            for (x, y) in rows {
                let batch = Batch { x: x.to_vec(), y: y.to_vec() };
                trainer.step(&batch.views()).unwrap();
            }
        }
        assert_eq!(trainer.counters().n_updates, STEPS as u64);
        losses.push((
            tensors(trainer.parameters().unwrap()),
            tensors(trainer.averaged_parameters().unwrap()),
        ));
    }
    let [large, small] = &losses[..] else { unreachable!("there are two") };
    assert_near(&small.0, &large.0, "parameters");
    assert_near(&small.1, &large.1, "averages");
}

/// A model with a buffer: a batch norm over the features of a layer.
fn normed() -> (Builder, Value) {
    let mut it = Builder::new();
    let x = it.input("x", DType::F32, &[BATCH, FEATURES]);
    let y = it.input("y", DType::I32, &[BATCH]);
    let fill = |low, high| Init::Uniform { low, high };
    let w = it.parameter("w", &[FEATURES, CLASSES], fill(-0.5, 0.5));
    let product = call(&mut it, "matmul", &[Argument::Tensor(x), Argument::Tensor(w)]);
    let [mean, var] = ["mean", "var"].map(|name| it.buffer(name, &[CLASSES], fill(0.5, 1.0)));
    let [weight, bias] =
        ["weight", "bias"].map(|name| it.parameter(name, &[CLASSES], fill(0.5, 1.0)));
    let [momentum, eps] = [0.1, 1e-5].map(Argument::Float);
    let operands = [product, mean, var, weight, bias].map(Argument::Tensor);
    let arguments: Vec<Argument> = operands.into_iter().chain([momentum, eps]).collect();
    let logits = call(&mut it, "batch_norm", &arguments);
    let loss = call(&mut it, "cross_entropy", &[Argument::Tensor(logits), Argument::Tensor(y)]);
    (it, loss)
}

pub(super) fn compiled(n_gpus: usize, optimizer: Optimizer) -> Compiled {
    let (builder, loss) = normed();
    let no_decay = optimizer.no_decay.iter().map(|_| "bias".to_owned()).collect();
    finish(builder, loss, &[], n_gpus, Strategy::Auto, Optimizer { no_decay, ..optimizer })
}

pub(super) fn bits(arrays: Vec<(String, Array)>) -> Vec<(String, Vec<u32>)> {
    let bits = |array: Array| array.data.into_iter().map(f32::to_bits).collect();
    arrays.into_iter().map(|(name, array)| (name, bits(array))).collect()
}

/// Returns the whole state between steps, as bits.
pub(super) fn state(trainer: &mut Trainer) -> Vec<(String, Vec<u32>)> {
    let mut state = bits(trainer.parameters().unwrap());
    state.extend(bits(trainer.optimizer_state().unwrap()));
    state
}

/// Returns a batch with a NaN.
pub(super) fn broken(number: f32) -> Batch {
    let mut batch = Batch::new(3);
    batch.x[17] = number;
    batch
}

/// Checks two skipped steps: they change only the number of steps, and the loss scale if there is
/// one and every step updates.
fn check_skips(trainer: &mut Trainer, compiled: &Compiled, what: &str) {
    let tables = &compiled.program.tables;
    let (before, counters) = (state(trainer), trainer.counters());
    let is_update = counters.n_accumulated + 1 == tables.accumulate;
    for number in [f32::NAN, f32::INFINITY] {
        let predicted = trainer.bytes_of_next_step();
        let loss = trainer.step(&broken(number).views()).unwrap();
        assert!(trainer.was_skipped() && !loss.is_finite(), "{what}: {loss}");
        // Steps that only accumulate gradients do not compute their norm.
        let is_norm_infinite = trainer.gradient_norm().map(|it| !it.is_finite());
        assert_eq!(is_norm_infinite, is_update.then_some(true), "{what}");
        assert_eq!(trainer.moved_bytes(), predicted, "{what}");
        assert_eq!(trainer.fed_bytes(), tables.fed_bytes(0), "{what}");
    }
    assert_eq!(state(trainer), before, "{what}");
    let (loss_scale, n_good) = match (tables.non_finite, tables.accumulate) {
        (NonFinite::Scale, 1) => (counters.loss_scale / 4.0, 0),
        // The sum of gradients has the scale.
        (NonFinite::Scale | NonFinite::Stop | NonFinite::Skip, _) => {
            (counters.loss_scale, counters.n_good)
        }
    };
    let n_steps = counters.n_steps + 2;
    assert_eq!(trainer.counters(), Counters { n_steps, loss_scale, n_good, ..counters }, "{what}");
}

#[test]
fn steps_that_are_not_finite_leave_everything_as_it_was() {
    let choices = [(NonFinite::Skip, 3), (NonFinite::Scale, 3), (NonFinite::Scale, 1)];
    for (n_gpus, (non_finite, accumulate)) in
        DEVICES.into_iter().flat_map(|it| choices.map(|choice| (it, choice)))
    {
        let optimizer = Optimizer { non_finite, accumulate, ..everything() };
        let compiled = compiled(n_gpus, optimizer);
        let mut trainer = trainer(&compiled, 0.02);
        let mut undisturbed = self::trainer(&compiled, 0.02);
        let kept = state(&mut trainer);
        let is_kept = |name: &str| kept.iter().any(|it| it.0 == name);
        assert!(is_kept("var") && is_kept("bias.ema"), "{kept:?}");
        assert_eq!(is_kept("w.gradient_sum"), accumulate > 1, "{kept:?}");
        for step in 0..6 {
            let what = format!("{n_gpus} devices, {non_finite} {accumulate}, step {step}");
            check_skips(&mut trainer, &compiled, &what);
            let losses = [&mut trainer, &mut undisturbed]
                .map(|it| it.step(&Batch::new(step).views()).unwrap());
            assert!(!trainer.was_skipped(), "{what}");
            assert_eq!(losses[0].to_bits(), losses[1].to_bits(), "{what}");
        }
        // Scales are powers of two, so gradients are equal under each.
        assert_eq!(state(&mut trainer), state(&mut undisturbed), "{n_gpus} devices, {non_finite}");
    }
}

#[test]
fn gradients_that_overflow_lower_the_scale_and_good_updates_raise_it() {
    let compiled = perceptron(2, Strategy::Auto, Optimizer { accumulate: 1, ..everything() });
    let tables = &compiled.program.tables;
    let mut trainer = trainer(&compiled, 0.001);
    let mut plain = self::trainer(&compiled, 0.001);
    assert_eq!(trainer.counters().loss_scale, 65536.0);
    // Gradients above 2 times this number overflow single precision.
    trainer.set_counters(Counters { loss_scale: 2.0_f32.powi(127), ..trainer.counters() });
    let mut batch = Batch::new(1);
    batch.x.iter_mut().for_each(|it| *it *= 30.0);
    let mut n_skipped = 0;
    while {
        trainer.step(&batch.views()).unwrap();
        trainer.was_skipped()
    } {
        n_skipped += 1;
        assert_eq!(trainer.counters().loss_scale, 2.0_f32.powi(127 - n_skipped));
        assert_eq!(trainer.counters().n_updates, 0);
        assert_eq!(trainer.moved_bytes(), tables.train_bytes());
    }
    assert!(n_skipped > 0);
    plain.step(&batch.views()).unwrap();
    let [scaled, plain] = [&mut trainer, &mut plain].map(|it| tensors(it.parameters().unwrap()));
    assert_near(&scaled, &plain, "after the scale was lowered");
    let counters = trainer.counters();
    assert_eq!((counters.n_updates, counters.n_good), (1, 1));
    trainer.set_counters(Counters { loss_scale: 4.0, n_good: 1998, ..counters });
    for (n_good, loss_scale) in [(1999, 4.0), (0, 8.0), (1, 8.0)] {
        trainer.step(&batch.views()).unwrap();
        let counters = trainer.counters();
        assert_eq!((counters.n_good, counters.loss_scale), (n_good, loss_scale));
    }
}

#[test]
fn a_hundred_skipped_steps_in_a_row_are_an_error() {
    let mut trainer = trainer(&compiled(1, everything()), 0.02);
    let (good, bad) = (Batch::new(0), broken(f32::NAN));
    for _ in 0..99 {
        trainer.step(&bad.views()).unwrap();
    }
    trainer.step(&good.views()).unwrap();
    for _ in 0..99 {
        trainer.step(&bad.views()).unwrap();
    }
    let error = trainer.step(&bad.views()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loss);
    assert_eq!(
        error.to_string(),
        "expected a finite loss, found that the loss is NaN in step 200 (learning rate 0.02), and 100 steps in a row were skipped"
    );
}

#[test]
fn averages_are_those_of_models_that_keep_them() {
    let mut trainer = trainer(&compiled(2, Optimizer::default()), 0.02);
    let error = trainer.averaged_parameters().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (
            ErrorKind::Parameters,
            "expected a model that keeps averages of its parameters, such as `ema = 0.999`, found none"
        )
    );
    let config = Config { seed: SEED, ..Config::default() };
    let averaged = Arc::new(compiled(2, everything()).program);
    let mut trainer = Trainer::new_shared(averaged, config).unwrap();
    let start = trainer.parameters().unwrap();
    assert_eq!(trainer.averaged_parameters().unwrap(), start);
    for step in 0..3 {
        trainer.step(&Batch::new(step).views()).unwrap();
    }
    let (averages, now) = (trainer.averaged_parameters().unwrap(), trainer.parameters().unwrap());
    for ((name, average), (other, now)) in averages.iter().zip(&now) {
        assert_eq!(name, other);
        // After the first update the average is the parameter itself; buffers have none.
        for (average, now) in average.data.iter().zip(&now.data) {
            assert!((average - now).abs() <= 1e-6 * now.abs(), "{name}: {average}, not {now}");
        }
    }
}
