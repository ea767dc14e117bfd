//! `precision = "bf16"`: training equals that in `f32` except for rounding, on any number of
//! devices, and moves the predicted bytes.

use crate::examples::digits_data;
use soybean::{
    Config, DataOptions, Network, Trainer,
    data::{DataLoader, Last, LoaderOptions},
};
use soybean_compiler::{Options, Strategy};
use soybean_plan::{DType, Precision};
use soybean_test_support::models::{Batch, finish_with, perceptron_model, sgd, trainer};

/// The relative rounding error of `bf16` is at most 2^-9, and the networks here round some ten
/// times in sequence.
const TOLERANCE: f32 = 2e-2;

/// `tf32` rounds operands on GPUs, with a relative error of 2^-11.
const TF32_TOLERANCE: f32 = 1e-3;

fn assert_close(found: f32, expected: f32, what: &str) {
    let difference = (found - expected).abs() / expected.abs();
    assert!(difference <= TOLERANCE, "{what}: expected {expected}, found {found}");
}

#[test]
fn every_plan_trains_alike_and_moves_its_bytes() {
    const LEARNING_RATE: f32 = 0.05;
    let losses = |precision, strategy: Strategy, n_gpus: usize| -> Vec<f32> {
        let (builder, loss, outputs) = perceptron_model();
        let (name, optimizer) = ("model".to_owned(), sgd(0.9));
        let options = Options { name, n_gpus, search: strategy.into(), precision, optimizer };
        let compiled = finish_with(builder, loss, &outputs, &options);
        let (tables, what) = (&compiled.program.tables, format!("{n_gpus} {strategy:?}"));
        let is_rounded = tables.buffers.iter().any(|it| it.dtype == DType::Bf16);
        assert_eq!(is_rounded, precision == Precision::Bf16);
        assert_eq!(tables.train_bytes(), compiled.report.search().tiled.bytes(), "{what}");
        let mut trainer = trainer(&compiled, LEARNING_RATE);
        let step = |index| {
            let loss = trainer.step(&Batch::new(index).views()).unwrap();
            assert_eq!(trainer.moved_bytes(), tables.train_bytes(), "{what}");
            assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes, "{what}");
            loss
        };
        let losses = (0..10).map(step).collect();
        let evaluation = trainer.evaluate(&Batch::new(0).views()).unwrap();
        assert_eq!(trainer.moved_bytes(), tables.entries[0].bytes, "{what}");
        assert!(evaluation.outputs[0].data.iter().any(|it| it.abs() > 0.1), "{evaluation:?}");
        losses
    };
    let expected = losses(Precision::F32, Strategy::Auto, 1);
    for (found, expected) in losses(Precision::Tf32, Strategy::Auto, 1).iter().zip(&expected) {
        assert!((found - expected).abs() <= TF32_TOLERANCE * expected, "{found}, not {expected}");
    }
    for n_gpus in [1, 2, 3, 4, 5, 6, 8] {
        for (name, strategy) in Strategy::NAMES {
            let found = losses(Precision::Bf16, strategy, n_gpus);
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_close(*found, *expected, &format!("{n_gpus} {name}, step {step}"));
            }
            assert_ne!(found, expected, "{n_gpus} {name}: nothing was rounded");
        }
    }
}

/// Returns the losses of some steps, and checks the moved bytes of each.
fn losses<N: Network>(step: impl Fn(&mut Trainer<N>, usize) -> f32) -> Vec<f32> {
    let config = Config { learning_rate: 0.01, ..Config::default() };
    let mut trainer = Trainer::<N>::new(config).unwrap();
    let mut checked = |at: usize| {
        let loss = step(&mut trainer, at);
        assert_eq!(trainer.moved_bytes(), N::PLAN.bytes_total);
        loss
    };
    (0..5).map(&mut checked).collect()
}

macro_rules! images {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, optimizer = adamw())]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 16, 3, 12, 12>, y: Tensor<i32, 16>) -> Tensor {
                let mut h = nn::batch_norm(nn::conv2d(x, 8, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu();
                h = h.max_pool2d(2, 2, 0);
                h = h + nn::batch_norm(nn::conv2d(h, 8, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu().dropout(0.1);
                nn::linear(h.avg_pool2d(2, 2, 0).flatten(), 16).cross_entropy(y)
            }
        })*
    };
}

images! {
    exact_images on 1 in "f32";
    images on 1 in "bf16";
    images_on_six on 6 in "bf16";
}

macro_rules! texts {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, optimizer = adamw())]
        pub(crate) mod $name {
            use soybean::prelude::*;

            use crate::example_networks::gpt::{Gpt, gpt};

            // Long enough for attention in one kernel.
            pub(crate) fn forward(x: Tensor<i32, 4, 32>, y: Tensor<i32, 4, 32>) -> Tensor {
                let sizes =
                    Gpt { vocabulary: 24, width: 32, n_heads: 4, n_layers: 2, dropout: 0.1 };
                gpt(x, sizes).cross_entropy(y)
            }
        })*
    };
}

texts! {
    exact_texts on 1 in "f32";
    texts on 1 in "bf16";
    texts_on_four on 4 in "bf16";
}

/// Returns pseudo-random numbers.
fn noise(n: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |it| ((it + 1) * 7919 + step * 104_729) % 2003)
}

fn labels(n: usize, n_classes: usize, step: usize) -> Vec<i32> {
    noise(n, step).map(|it| i32::try_from(it % n_classes).unwrap()).collect()
}

macro_rules! losses_of {
    ($model:ident, $batch:expr) => {
        losses::<$model::Network>(|trainer, step| {
            let (x, y) = $batch(step);
            trainer.step(&$model::Batch { x: &x, y: &y }).unwrap()
        })
    };
}

fn assert_all_close(expected: &[f32], found: &[&[f32]]) {
    for losses in found {
        for (found, expected) in losses.iter().zip(expected) {
            assert_close(*found, *expected, &format!("{losses:?}"));
        }
    }
}

#[test]
fn convolutions_and_pooling_learn_the_same() {
    let batch = |step| -> (Vec<f32>, Vec<i32>) {
        let images = noise(16 * 3 * 12 * 12, step).map(|it| it as f32 / 1001.0 - 1.0);
        (images.collect(), labels(16, 16, step))
    };
    let found = [losses_of!(images, batch), losses_of!(images_on_six, batch)];
    assert_all_close(&losses_of!(exact_images, batch), &[&found[0], &found[1]]);
}

#[test]
fn embeddings_and_attention_learn_the_same() {
    let batch = |step| (labels(4 * 32, 24, step), labels(4 * 32, 24, step + 1));
    let found = [losses_of!(texts, batch), losses_of!(texts_on_four, batch)];
    assert_all_close(&losses_of!(exact_texts, batch), &[&found[0], &found[1]]);
}

macro_rules! digits {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, optimizer = sgd(momentum = 0.9))]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 32, 64>, y: Tensor<i32, 32>) -> (Tensor, Tensor) {
                let h = nn::linear(nn::linear(x, 64).relu(), 64).relu();
                let logits = nn::linear(h, 10);
                (logits.cross_entropy(y), logits)
            }
        })*
    };
}

digits! {
    digits on 4 in "bf16";
    exact_digits on 1 in "f32";
}

macro_rules! accuracy_of {
    ($model:ident) => {{
        let split = digits_data::load(&DataOptions::default()).unwrap();
        let config = Config { learning_rate: 0.05, ..Config::default() };
        let mut trainer = $model::Trainer::new(config).unwrap();
        let mut loader = DataLoader::new(split.train, LoaderOptions::training(32, 0)).unwrap();
        for epoch in 0..12 {
            loader.start(epoch, 0);
            for batch in &mut loader {
                let batch = batch.unwrap();
                let batch = $model::Batch { x: batch.f32s(0), y: batch.i32s(1) };
                trainer.step(&batch).unwrap();
            }
        }
        let options = LoaderOptions { last: Last::Drop, ..LoaderOptions::evaluation(32) };
        let held_out = DataLoader::new(split.held_out, options).unwrap();
        let (mut n_right, mut n) = (0_usize, 0_usize);
        for batch in held_out {
            let batch = batch.unwrap();
            let (x, y) = (batch.f32s(0), batch.i32s(1));
            let logits = &trainer.evaluate(&$model::Batch { x, y }).unwrap().outputs[0];
            for (row, label) in logits.data.chunks(10).zip(y) {
                let best = (0..10).max_by(|i, j| row[*i].total_cmp(&row[*j])).unwrap();
                n_right += usize::from(i32::try_from(best).unwrap() == *label);
                n += 1;
            }
        }
        n_right as f64 / n as f64
    }};
}

#[test]
fn digits_are_learnt_as_well() {
    let (exact, rounded) = (accuracy_of!(exact_digits), accuracy_of!(digits));
    assert!(exact > 0.94, "{exact}");
    // Three more of 352 held-out images may be classified wrongly.
    assert!(rounded >= exact - 0.01, "{rounded} in bf16, {exact} in f32");
}
