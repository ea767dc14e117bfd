//! The examples' models on every number of GPUs from 1 to 16: what does not divide is padded, and
//! training goes as on one device.
//!
//! The models of images and texts are tried on few numbers unless this is an optimized build
//! (`cargo test --release --test it every_number`).

use std::sync::Arc;

use soybean::{
    Config, Network,
    plan::DType,
    runtime::{Trainer, View},
};
use soybean_compiler::Recipe;
use soybean_test_support::models::{numbers, single};

use crate::examples::{cnn_digits, digits, gpt};

const N_STEPS: usize = 20;
const ALL: [usize; 15] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// The losses of the first steps on some number of GPUs. Each step must move the bytes of the plan.
fn losses(
    recipe: &str,
    n_gpus: usize,
    n_steps: usize,
    learning_rate: f32,
    n_classes: i32,
) -> Vec<f32> {
    let mut recipe: Recipe = recipe.parse().unwrap();
    recipe.options.n_gpus = n_gpus;
    let compiled = recipe.compile(&|| 0.0).unwrap();
    let tables = compiled.program.tables.clone();
    assert_eq!(tables.train_bytes(), compiled.report.search().tiled.bytes(), "{n_gpus}");
    let config = Config { learning_rate, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
    let step = |step: usize| {
        let batch: Vec<(Vec<f32>, Vec<i32>)> = (tables.inputs.iter())
            .map(|input| {
                let n = input.tile.shape.n_elements();
                let classes = (0..n_classes).cycle().skip(3 * step).step_by(7).take(n);
                (single(&numbers(n, step)), classes.collect())
            })
            .collect();
        let views: Vec<View<'_>> = tables
            .inputs
            .iter()
            .zip(&batch)
            .map(|(input, (floats, integers))| match input.dtype {
                DType::I32 => View::I32(integers),
                DType::F32 | DType::Bf16 => View::F32(floats),
            })
            .collect();
        let loss = trainer.step(&views).unwrap();
        assert_eq!(trainer.moved_bytes(), tables.train_bytes(), "{n_gpus}, step {step}");
        assert_eq!(trainer.fed_bytes(), tables.fed_bytes(0), "{n_gpus}, step {step}");
        loss
    };
    (0..n_steps).map(step).collect()
}

fn check<N: Network>(all_n_gpus: &[usize], n_steps: usize, learning_rate: f32, n_classes: i32) {
    // Losses are sums over a batch in another order; their last digits change the next updates.
    let of = |n_gpus| losses(N::PLAN.recipe, n_gpus, n_steps, learning_rate, n_classes);
    let expected = of(1);
    assert!(expected[n_steps - 1] != expected[0]);
    for &n_gpus in all_n_gpus {
        for (step, (found, expected)) in of(n_gpus).iter().zip(&expected).enumerate() {
            let what = format!("{n_gpus} GPUs, step {step}: {found}, not {expected}");
            assert!((found - expected).abs() <= 1e-4, "{what}");
        }
    }
}

#[test]
fn digits_learn_the_same() {
    check::<digits::digits::Network>(&ALL, N_STEPS, 0.1, 10);
}

#[test]
fn images_of_digits_learn_the_same() {
    let n_gpus: &[usize] = if cfg!(debug_assertions) { &[5, 7, 12] } else { &ALL };
    check::<cnn_digits::cnn_digits::Network>(n_gpus, N_STEPS, 0.001, 10);
}

#[test]
fn texts_learn_the_same() {
    let (n_gpus, n_steps): (&[usize], usize) =
        if cfg!(debug_assertions) { (&[7], 2) } else { (&ALL, N_STEPS) };
    check::<gpt::gpt::Network>(n_gpus, n_steps, 0.001, 75);
}
