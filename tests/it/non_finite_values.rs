//! Next values of parameters, buffers and states that are not finite, though the loss is: the step
//! fails, names the operator and its line, and nothing of it reaches a checkpoint.
#![expect(clippy::cognitive_complexity, reason = "the macro is a block for each model")]

use std::path::{Path, PathBuf};

use soybean::{
    Array, Config, Device, Metric, Network, Resume, Split, TrainConfig,
    checkpoint::{Checkpoints, Progress},
    data::{Column, Table, Values},
    runtime::{ErrorKind, Trainer, View},
};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

/// Defines a model on 1, 2 and 4 devices.
macro_rules! models {
    ($($name:ident ($($settings:tt)*) $init:ident |$x:ident, $s:ident| $loss:expr;)*) => {
        $(pub(crate) mod $name {
            models!(@on one 1 ($($settings)*) $init |$x, $s| $loss);
            models!(@on two 2 ($($settings)*) $init |$x, $s| $loss);
            models!(@on four 4 ($($settings)*) $init |$x, $s| $loss);
        })*
    };
    (@on $name:ident $gpus:literal ($($settings:tt)*) $init:ident |$x:ident, $s:ident| $loss:expr) => {
        #[soybean::model(gpus = $gpus, $($settings)*)]
        pub(crate) mod $name {
            use soybean::prelude::*;
            pub(crate) fn forward($x: Tensor<f32, 4, 8>) -> Tensor {
                let $s = param("s", [4, 8], $init());
                $loss
            }
        }
    };
}

models! {
    root (optimizer = adam()) zeros |x, s| (x * s.sqrt()).sum(..);
    power (optimizer = adam()) zeros |x, s| (x * s.pow(0.5)).sum(..);
    quotient (optimizer = adam()) zeros |x, s| (x / s).tanh().mean(..);
    logarithm (optimizer = adam()) zeros |x, s| (x * s.log().exp()).mean(..);
    norm (optimizer = sgd()) ones |x, s| ((x - s).square().sum([1]).sqrt()).mean(..);
    product (optimizer = sgd()) zeros |x, s| ((x * s * 1e15).square() * 1e30).square().exp().mean(..) + (s * 1e25 * 1e25).sum(..);
    moment (optimizer = adam()) zeros |x, s| (x * s * 1e20).sum(..);
    rate (optimizer = sgd(momentum = 0.9)) ones |x, s| (x * s).square().sum(..);
    average (optimizer = sgd(), ema = 0.9) ones |x, s| (x * s).square().sum(..);
    summed (optimizer = sgd(), accumulate = 2) ones |x, s| ((x - s).square().sum([1]).sqrt()).mean(..);
    skipping (optimizer = sgd(), non_finite = "skip") zeros |x, s| (x * s.sqrt()).sum(..);
    skipping_rate (optimizer = sgd(), non_finite = "skip") ones |x, s| (x * s).square().sum(..);
}

const X: [f32; 32] = [1.0; 32];

fn trainer<N: Network>(device: Device, learning_rate: f32) -> Trainer {
    Trainer::new(N::model(), Config { device, learning_rate, ..Config::default() }).unwrap()
}

fn are_finite(tensors: &[(String, Array)]) -> bool {
    tensors.iter().all(|it| it.1.data.iter().all(|it| it.is_finite()))
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("non_finite_values").join(name);
    let _may_not_exist = std::fs::remove_dir_all(&path);
    path
}

/// Trains `n_good` steps on a batch of 2 and then one on [`X`], which fails. Returns the error.
fn fails<N: Network>(device: Device, rate: f32, n_good: usize) -> String {
    let mut trainer = trainer::<N>(device, rate);
    for _ in 0..n_good {
        trainer.step(&[View::F32(&[2.0; 32])]).unwrap();
    }
    // Tests run at the same time, so each model has a folder of its own.
    let model = std::any::type_name::<N>().replace("::", "_");
    let folder = folder(&format!("{model}_{device}_{n_good}"));
    let mut checkpoints = Checkpoints::new(&folder, 2);
    let good = checkpoints.save(&mut trainer, &Progress::default()).unwrap();
    let error = trainer.step(&[View::F32(&X)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loss, "{error}");
    // Nothing goes on from a step of which half was done.
    assert!(are_finite(&trainer.parameters().unwrap()), "{error}");
    assert!(are_finite(&trainer.optimizer_state().unwrap()), "{error}");
    let needs = "expected a restored checkpoint";
    let is_refused = |it: soybean::Error| it.to_string().starts_with(needs);
    assert!(is_refused(trainer.step(&[View::F32(&X)]).unwrap_err()));
    assert!(is_refused(trainer.queue(&[View::F32(&X)]).unwrap_err()));
    assert!(is_refused(trainer.evaluate(&[View::F32(&X)]).unwrap_err()));
    let unsaved = checkpoints.save(&mut trainer, &Progress::default()).unwrap_err().to_string();
    assert!(unsaved.contains(needs), "{unsaved}");
    let latest = checkpoints.latest().unwrap().checkpoint.unwrap();
    assert_eq!(latest.path(), good);
    trainer.restore(&latest).unwrap();
    trainer.evaluate(&[View::F32(&X)]).unwrap();
    assert_eq!(trainer.step(&[View::F32(&X)]).unwrap_err(), error);
    error.to_string()
}

/// Checks that a model fails on any number of devices, naming a tensor and a line.
macro_rules! check {
    ($name:ident, $rate:expr, $n_good:expr, $tensor:expr, $operator:expr) => {{
        check!(@on $name one, $rate, $n_good, $tensor, $operator);
        check!(@on $name two, $rate, $n_good, $tensor, $operator);
        check!(@on $name four, $rate, $n_good, $tensor, $operator);
    }};
    (@on $name:ident $on:ident, $rate:expr, $n_good:expr, $tensor:expr, $operator:expr) => {{
        let _function = $name::$on::forward;
        let n_good: usize = $n_good;
        let error = fails::<$name::$on::Network>(Device::Cpu, $rate, n_good);
        let step = n_good + 1;
        assert!(error.contains(&format!("that step {step} would leave {}", $tensor)), "{error}");
        let config = Config { device: Device::Cpu, learning_rate: $rate, ..Config::default() };
        let mut trainer = $name::$on::Trainer::new(config).unwrap();
        for _ in 0..n_good {
            trainer.step(&$name::$on::Batch { x: &[2.0; 32] }).unwrap();
        }
        let error = trainer.step(&$name::$on::Batch { x: &X }).unwrap_err().to_string();
        let place = format!("`{}` at tests/it/non_finite_values.rs:", $operator);
        assert!($operator.is_empty() || error.contains(&place), "{error}\nnot {place}");
    }};
}

// Guards: a finite loss with a gradient that is not finite wrote NaN into the weights.
#[test]
fn gradients_that_are_not_finite_fail_at_their_step() {
    check!(root, 0.01, 0, "the parameter `s`", "sqrt");
    check!(power, 0.01, 0, "the parameter `s`", "pow");
    check!(quotient, 0.01, 0, "the parameter `s`", "div");
    check!(logarithm, 0.01, 0, "the parameter `s`", "log");
    check!(norm, 1e-3, 0, "the parameter `s`", "sqrt");
    check!(norm, 0.0, 3, "the parameter `s`", "sqrt");
    check!(product, 0.01, 0, "the parameter `s`", "");
}

// Guards: states, averages and parameters that overflow on their own.
#[test]
fn updates_that_overflow_fail_at_their_step() {
    check!(moment, 0.01, 0, "the state `s.", "");
    check!(rate, 3e38, 0, "the parameter `s`", "");
    check!(average, 3e38, 0, "the parameter `s`", "");
}

// Guards: sums of gradients that are not finite, in the first step of an update and in the last.
#[test]
fn accumulated_gradients_fail_at_their_step() {
    check!(summed, 0.0, 0, "the state `s.gradient_sum`", "sqrt");
    check!(summed, 0.0, 1, "the parameter `s`", "sqrt");
    check!(summed, 0.0, 2, "the state `s.gradient_sum`", "sqrt");
}

#[test]
fn skipped_steps_stay_skipped_and_overflow_does_not() {
    let _functions = (skipping::one::forward, skipping::two::forward, skipping::four::forward);
    let mut trainer = trainer::<skipping::two::Network>(Device::Cpu, 0.01);
    let before = trainer.parameters().unwrap();
    trainer.step(&[View::F32(&X)]).unwrap();
    assert!(trainer.was_skipped() && trainer.parameters().unwrap() == before);
    check!(skipping_rate, 3e38, 0, "the parameter `s`", "");
}

#[soybean::model(gpus = 2, optimizer = sgd(), entries = (plain, rooted))]
mod players {
    use soybean::prelude::*;

    pub(crate) fn plain(x: Tensor<f32, 4, 8>) -> Tensor {
        (x * param("s", [4, 8], zeros())).sum(..)
    }

    pub(crate) fn rooted(x: Tensor<f32, 4, 8>) -> Tensor {
        (x * param("s", [4, 8], zeros()).sqrt()).sum(..)
    }
}

#[test]
fn entries_fail_each_for_itself() {
    let mut trainer = trainer::<players::Network>(Device::Cpu, 0.0);
    trainer.step_by(0, &[View::F32(&X)]).unwrap();
    let error = trainer.step_by(1, &[View::F32(&X)]).unwrap_err().to_string();
    assert!(error.contains("that step 2 would leave the parameter `s` not finite"), "{error}");
    assert!(trainer.step_by(0, &[View::F32(&X)]).is_err());
}

/// The mean distance of rows. The gradient of the distance of a row of zeros is 0 / 0.
#[soybean::model(gpus = 2, optimizer = adam())]
mod distances {
    use soybean::{nn, prelude::*};

    /// The line of the root.
    pub(crate) const LINE: u32 = line!() + 3;

    pub(crate) fn forward(x: Tensor<f32, 2, 4>) -> Tensor {
        nn::linear_without_bias(x, 3).square().sum([1]).sqrt().mean(..)
    }
}

/// Returns rows of which the one of this number is zero, if there is one.
fn rows(zero: Option<usize>) -> Table {
    let mut x: Vec<f32> = (0..24).map(|it| ((it * it + 3 * it) % 17) as f32 / 8.0 - 1.0).collect();
    if let Some(zero) = zero {
        x[4 * zero..4 * zero + 4].fill(0.0);
    }
    Table::new(vec![Column { name: "x".to_owned(), row: vec![4], values: Values::F32(x) }]).unwrap()
}

// Guards: a run that ends with exit 0 and NaN as its newest checkpoint, and advice to resume there.
#[test]
fn runs_keep_the_last_good_checkpoint() {
    for (seed, every) in [(0, None), (1, Some(1)), (2, Some(1)), (3, Some(2))] {
        let out = folder(&format!("run_{seed}"));
        let mut config = TrainConfig::new(2, 0.05);
        config.trainer.seed = seed;
        config.trainer.device = Device::Cpu;
        config.checkpoint_every = every;
        config.out = Some(out.clone());
        let split = Split::new(rows(Some(5)), rows(None));
        let run = |config: &TrainConfig| {
            let mut trainer = distances::Trainer::new(config.trainer.clone()).unwrap();
            trainer.fit(config, &split).unwrap_err().to_string()
        };
        let error = run(&config);
        let place = format!("`sqrt` at tests/it/non_finite_values.rs:{}", distances::LINE);
        assert!(error.contains(&place), "{error}");
        let latest = Checkpoints::new(out.join("checkpoints"), 0).latest().unwrap();
        assert!(latest.refused.is_empty());
        match latest.checkpoint {
            Some(found) => {
                assert!(
                    error.contains(&format!("the last checkpoint is {}", found.path().display()))
                );
                let mut restored = trainer::<distances::Network>(Device::Cpu, 0.05);
                restored.restore(&found).unwrap();
                assert!(are_finite(&restored.parameters().unwrap()));
            }
            None => assert!(error.ends_with("no checkpoint was written before"), "{error}"),
        }
        assert!(!out.join("best").exists());
        config.resume = Resume::Auto;
        assert!(run(&config).contains(&place));
    }
}

// Guards: a held-out loss that is not finite, which ended no run and was compared with the best.
#[test]
fn held_out_losses_must_be_finite() {
    let infinite = |n: usize| {
        let mut x = vec![1.0; 4 * n];
        x[5] = f32::INFINITY;
        let column = Column { name: "x".to_owned(), row: vec![4], values: Values::F32(x) };
        Table::new(vec![column]).unwrap()
    };
    let mut trainer = distances::Trainer::new(Config::default()).unwrap();
    let error = trainer.evaluate_dataset(infinite(4), &Metric::usual()).unwrap_err().to_string();
    let expected = "batch 1 of an evaluation: expected a finite loss, found infinity; the input `x` is not finite in row 1 of the batch: infinity";
    assert_eq!(error, expected);
    let out = folder("held_out");
    let config = TrainConfig { out: Some(out.clone()), ..TrainConfig::new(1, 0.01) };
    let error = trainer.fit(&config, &Split::new(rows(None), infinite(4))).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    assert!(!out.join("best").exists());
    // Numbers that only the evaluation makes not finite.
    let mut parameters = trainer.parameters().unwrap();
    parameters[0].1.data.fill(1e30);
    trainer.set_parameters(&parameters).unwrap();
    let error = trainer.evaluate_dataset(rows(None), &Metric::usual()).unwrap_err().to_string();
    let place = format!("` at tests/it/non_finite_values.rs:{}", distances::LINE);
    assert!(error.contains(&place), "{error}");
}

/// Joined updates of small parameters, of which one alone is not finite.
#[soybean::model(gpus = 2, optimizer = adam())]
mod joined {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 8>) -> Tensor {
        let shifted = x + param("a", [8], zeros()) + param("b", [8], zeros());
        let rooted = param("c", [8], zeros()).sqrt() * param("d", [8], zeros());
        (shifted * shifted).mean(..) + (shifted * rooted).sum(..)
    }
}

// The maps of GPUs check what they store, in the place of a tensor or before an exchange, alone or
// for several small parameters at once.
#[test]
fn gpus_fail_at_the_same_step() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "4")];
    on_virtual_gpus("non_finite_values::gpus_fail_at_the_same_step", &settings, |machine| {
        macro_rules! check {
            ($name:ident, $rate:expr, $n_good:expr) => {
                check!(@on $name::one::Network, $rate, $n_good);
                check!(@on $name::two::Network, $rate, $n_good);
                check!(@on $name::four::Network, $rate, $n_good);
            };
            (@on $network:ty, $rate:expr, $n_good:expr) => {
                let on_cpus = fails::<$network>(Device::Cpu, $rate, $n_good);
                assert_eq!(fails::<$network>(Device::Cuda, $rate, $n_good), on_cpus);
            };
        }
        check!(root, 0.01, 0);
        check!(norm, 0.0, 3);
        check!(moment, 0.01, 0);
        check!(rate, 3e38, 0);
        check!(average, 3e38, 0);
        check!(summed, 0.0, 0);
        check!(summed, 0.0, 1);
        check!(skipping_rate, 3e38, 0);
        check!(@on joined::Network, 0.01, 0);
        assert_eq!(machine.n_complaints(), 0);
    });
}
