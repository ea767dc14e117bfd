//! Numbers that programs set, each with its range: below it, above it, NaN and infinities are
//! errors that name the setting, and the ends of the range are taken.
//!
//! Numbers of operators, initializers and optimizers are in `soybean-compiler/tests/it/ranges.rs`.

use std::{fs, path::Path};

use soybean::{
    Config, Counters, Metric, Schedule, Split, TrainConfig,
    data::{
        Augmentation, Column, CsvSpec, DataLoader, Dataset, Form, LoaderOptions, Mixing,
        Standardization, Table, TokenSpec, Tokens, Values,
    },
    generation::{Generation, GenerationConfig, Sampling},
    plan::NumberRange,
};

#[soybean::model(gpus = 1)]
mod tiny {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 4, 2>, y: Tensor<f32, 4>) -> Tensor {
        let w = param("w", [2], ones());
        ((x * w).sum(1) - y).square().mean(..)
    }
}

/// Returns 8 rows for `tiny`, or images of 2 x 2 pixels.
fn table(name: &str, row: &[usize]) -> Table {
    let n: usize = row.iter().product();
    let x = (0..8 * n).map(|it| it as f32 / 8.0).collect();
    let x = Column { name: name.to_owned(), row: row.to_vec(), values: Values::F32(x) };
    let y = (0..8).map(|it| it as f32).collect();
    let y = Column { name: "y".to_owned(), row: Vec::new(), values: Values::F32(y) };
    Table::new(vec![x, y]).unwrap()
}

fn text<T>(result: Result<T, soybean::Error>) -> Result<(), String> {
    result.map(drop).map_err(|it| it.to_string())
}

fn single(number: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "settings in single precision")]
    let number = number as f32;
    number
}

/// Trains one step by the loop of runs.
fn trained(change: impl Fn(&mut TrainConfig), split: &Split) -> Result<(), String> {
    let mut config =
        TrainConfig { steps: Some(1), checkpoints: false, ..TrainConfig::new(1, 0.01) };
    change(&mut config);
    let trainer = tiny::Trainer::new(config.trainer.clone());
    text(trainer.and_then(|mut it| it.fit(&config, split)))
}

fn trained_with(change: impl Fn(&mut TrainConfig)) -> Result<(), String> {
    trained(change, &Split::new(table("x", &[2]), table("x", &[2])))
}

fn read_first_row(dataset: impl Dataset + 'static) -> Result<(), String> {
    let loader = DataLoader::new(dataset, LoaderOptions::evaluation(1));
    text(loader.and_then(|mut it| it.next().expect("there is a row")))
}

fn augmented(change: Augmentation) -> Result<(), String> {
    text(table("x", &[3, 2, 2]).augment(0, vec![change]))
}

fn of_csv(scale: f32) -> Result<(), String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranges.csv");
    fs::write(&path, "a,b\n1,2\n3,4\n").unwrap();
    text(Table::from_csv(&path, &CsvSpec::named(["a"], "b", Form::Numbers { scale })))
}

fn generated(sampling: Sampling) -> Result<(), String> {
    text(Generation::new(&[&[1]], GenerationConfig { sampling, ..GenerationConfig::new(1, 8) }))
}

fn stepped_with(counters: Counters) -> Result<(), String> {
    let mut trainer = tiny::Trainer::new(Config::default()).unwrap();
    trainer.set_counters(counters);
    text(trainer.step(&tiny::Batch { x: &[0.5; 8], y: &[1.0; 4] }))
}

/// A setting, its range, and what happens with a number.
type Row = (&'static str, NumberRange, fn(f64) -> Result<(), String>);

const NUMBERS: &[Row] = &[
    ("learning_rate", NumberRange::NON_NEGATIVE, |it| {
        text(tiny::Trainer::new(Config { learning_rate: single(it), ..Config::default() }))
    }),
    ("learning_rate", NumberRange::NON_NEGATIVE, |it| {
        let mut trainer = tiny::Trainer::new(Config::default()).unwrap();
        trainer.set_learning_rate(single(it));
        text(trainer.step(&tiny::Batch { x: &[0.5; 8], y: &[1.0; 4] }))
    }),
    ("min-lr", NumberRange::NON_NEGATIVE, |it| {
        let schedule = Schedule { floor: single(it), ..Schedule::default() };
        trained_with(|run| {
            (run.schedule, run.trainer.learning_rate) = (schedule, 2.0);
        })
    }),
    ("decay", NumberRange::NON_NEGATIVE, |it| {
        let schedule = Schedule { decay: single(it), ..Schedule::default() };
        trained_with(|run| run.schedule = schedule)
    }),
    ("fraction", NumberRange::SHARE, |it| {
        let (train, held_out) = table("x", &[2]).split(it, 0);
        if train.n_rows() > 0 { read_first_row(train) } else { read_first_row(held_out) }
    }),
    ("temperature", NumberRange::NON_NEGATIVE, |temperature| {
        generated(Sampling { temperature, ..Sampling::default() })
    }),
    ("top_p", NumberRange::POSITIVE_SHARE, |top_p| {
        generated(Sampling { top_p, ..Sampling::default() })
    }),
    ("probability", NumberRange::SHARE, |it| {
        augmented(Augmentation::HorizontalFlip { probability: single(it) })
    }),
    ("change", NumberRange::SHARE, |it| augmented(Augmentation::Brightness { most: single(it) })),
    ("change", NumberRange::SHARE, |it| augmented(Augmentation::Contrast { most: single(it) })),
    ("change", NumberRange::SHARE, |it| augmented(Augmentation::Saturation { most: single(it) })),
    ("fill", NumberRange::FINITE, |it| {
        augmented(Augmentation::Crop { padding: 1, fill: single(it) })
    }),
    ("alpha", NumberRange::POSITIVE, |it| {
        text(table("x", &[2]).mix(0, Mixing::Mixup { alpha: single(it) }))
    }),
    ("deviation", NumberRange::POSITIVE, |it| {
        let mean = vec![0.0; 2];
        let deviation = vec![1.0, single(it)];
        let scaling = Standardization { column: "x".to_owned(), mean, deviation };
        text(scaling.apply(table("x", &[2])))
    }),
    ("mean", NumberRange::FINITE, |it| {
        let mean = vec![0.0, single(it)];
        let scaling = Standardization { column: "x".to_owned(), mean, deviation: vec![1.0; 2] };
        text(scaling.apply(table("x", &[2])))
    }),
];

// Guards: fractions, rates, probabilities, temperatures and factors out of range are errors that
// name the setting, wherever a program sets them.
#[test]
fn numbers_out_of_range_are_errors_that_name_the_setting() {
    let mut faults = Vec::new();
    for (setting, range, of_number) in NUMBERS {
        for number in range.outside() {
            match of_number(number) {
                Err(message) if message.contains(setting) => {}
                other => faults.push(format!("{setting} = {number}: {other:?}")),
            }
        }
        for number in range.inside() {
            if let Err(message) = of_number(number) {
                faults.push(format!("{setting} = {number}: {message}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// Guards: `scale: 0.0` made every number 0, and the error about NaN did not name the scale.
#[test]
fn scales_are_finite_and_not_0() {
    for scale in [0.0, -0.0, f32::NAN, f32::INFINITY] {
        let message = of_csv(scale).unwrap_err();
        assert!(message.contains("`scale` must be a finite number other than 0"), "{message}");
    }
    for scale in [1.0, -0.5, 1e-30] {
        of_csv(scale).unwrap();
    }
}

// Guards: counts of 0 where at least one is needed.
#[test]
fn counts_of_0_are_errors_that_name_the_setting() {
    let config = |threads| Config { threads, ..Config::default() };
    let zero = Some(std::time::Duration::ZERO);
    let tokens = |length, stride, vocabulary| {
        text(Tokens::new(vec![1; 9], TokenSpec { length, stride, vocabulary }))
    };
    let cases: Vec<(&str, Result<(), String>)> = vec![
        ("min-delta", trained_with(|run| run.min_delta = f64::NAN)),
        ("threads", text(tiny::Trainer::new(config(Some(0))))),
        ("peer_timeout", text(tiny::Trainer::new(Config { peer_timeout: zero, ..config(None) }))),
        ("step_timeout", text(tiny::Trainer::new(Config { step_timeout: zero, ..config(None) }))),
        ("steps", trained_with(|run| run.steps = Some(0))),
        ("batch-limit", trained_with(|run| run.batch_limit = Some(0))),
        ("log-every", trained_with(|run| run.log_every = 0)),
        ("decay-every", trained_with(|run| run.schedule.decay_every = Some(0))),
        ("top-0", trained_with(|run| run.metrics = vec![Metric::top(0)])),
        ("top_k", generated(Sampling { top_k: Some(0), ..Sampling::default() })),
        ("capacity", text(Generation::new(&[&[1]], GenerationConfig::new(1, 1)))),
        ("batch of 0", text(DataLoader::new(table("x", &[2]), LoaderOptions::evaluation(0)))),
        ("n_classes", text(labels().one_hot("y", 0))),
        ("window", tokens(0, 1, 9)),
        ("stride", tokens(2, 0, 9)),
        ("vocabulary", tokens(2, 1, 0)),
    ];
    for (setting, outcome) in cases {
        let message = outcome.expect_err(setting);
        assert!(message.contains(setting) || message.contains("token"), "{setting}: {message}");
    }
}

fn labels() -> Table {
    let y = Column { name: "y".to_owned(), row: Vec::new(), values: Values::I32(vec![0; 4]) };
    Table::new(vec![y]).unwrap()
}

// Guards: a floor above the learning rate turned schedules round.
#[test]
fn rates_are_in_order() {
    let schedule = Schedule { floor: 0.5, ..Schedule::default() };
    let message = trained_with(|run| run.schedule = schedule).unwrap_err();
    assert_eq!(message, "min-lr: expected a number from 0 to 0.01, the learning rate, found `0.5`");
    trained_with(|run| run.schedule.floor = 0.01).unwrap();
}

// Guards: `Counters { n_accumulated: 1, .. }` in a model whose steps all update panicked in the
// next step.
#[test]
fn counters_are_those_of_the_model() {
    let of = |change: fn(&mut Counters)| {
        let mut counters = Counters::default();
        change(&mut counters);
        stepped_with(counters)
    };
    of(|_| {}).unwrap();
    of(|it| (it.n_steps, it.n_updates, it.n_good) = (1 << 53, 1 << 53, 1999)).unwrap();
    type Change = fn(&mut Counters);
    let cases: [(&str, Change); 10] = [
        ("n_accumulated", |it| it.n_accumulated = 1),
        ("n_accumulated", |it| it.n_accumulated = u64::MAX),
        ("n_steps", |it| it.n_steps = u64::MAX),
        ("n_updates", |it| it.n_updates = u64::MAX),
        ("n_updates_by", |it| it.n_updates_by.0[0] = u64::MAX),
        ("n_good", |it| it.n_good = 2000),
        ("loss_scale", |it| it.loss_scale = 0.0),
        ("loss_scale", |it| it.loss_scale = -1.0),
        ("loss_scale", |it| it.loss_scale = f32::NAN),
        ("loss_scale", |it| it.loss_scale = f32::INFINITY),
    ];
    for (counter, change) in cases {
        let message = of(change).expect_err(counter);
        assert!(message.contains(&format!("the counter `{counter}` must be")), "{message}");
    }
}

// Guards: every number among the keys of a run's file; a key that is added is tried, too.
#[test]
fn keys_of_runs_take_no_numbers_out_of_range() {
    let schedule = Schedule { decay_every: Some(3), ..Schedule::default() };
    let all = TrainConfig {
        steps: Some(3),
        batch_limit: Some(3),
        schedule,
        evaluate_every: Some(3),
        patience: Some(3),
        checkpoint_every: Some(3),
        trainer: Config { threads: Some(3), ..Config::default() },
        ..TrainConfig::default()
    };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranges.toml");
    let mut n_keys = 0;
    for line in all.to_toml().lines() {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        if value.parse::<f64>().is_err() {
            continue;
        }
        n_keys += 1;
        let bad = ["-1", "-0.5", "nan", "inf", "-inf", "1e400"];
        // Numbers with a point may be large.
        let large = ["1.5", "1e39", "99999999999999999999999"];
        let large = large.iter().filter(|_| !value.contains('.'));
        for number in bad.iter().chain(large) {
            fs::write(&path, format!("{key} = {number}\n")).unwrap();
            let error = TrainConfig::from_toml(&path).expect_err(key).to_string();
            assert!(error.contains(&format!("{key}: expected")), "{number}: {error}");
        }
    }
    assert!(n_keys >= 18, "{n_keys}");
}
