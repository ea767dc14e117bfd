//! Training steps: `cargo bench --bench training`.
//!
//! Times of one machine mean little; `peers/compare.py` compares the same models with other
//! frameworks.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use soybean::{
    Config, Device,
    runtime::{KernelCategory, Trainer, View},
};
use soybean_compiler::{Options, Strategy, compile};

use soybean_zoo::{Model, perceptron};

const BATCH: usize = 512;
const N_LAYERS: usize = 4;
const N_STEPS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut output = io::stdout().lock();
    writeln!(
        output,
        "{:<10} {:>6} {:>10} {:>10} {:>12}",
        "model", "ranks", "median ms", "least ms", "contraction"
    )?;
    for width in [1024, 2048] {
        for n_gpus in [1, 8] {
            let (least, median, share) = measure(width, n_gpus)?;
            writeln!(
                output,
                "{:<10} {n_gpus:>6} {median:>10.2} {least:>10.2} {:>10.1} %",
                format!("mlp{width}"),
                100.0 * share
            )?;
        }
    }
    Ok(())
}

/// Returns the minimum and the median time of a step in milliseconds, and the fraction of it in
/// matrix products.
fn measure(width: usize, n_gpus: usize) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    let Model { builder, loss, .. } = perceptron(BATCH, &[width; N_LAYERS + 1]);
    let options = Options {
        name: format!("mlp{width}"),
        n_gpus,
        search: Strategy::Auto.into(),
        precision: soybean_plan::Precision::F32,
        optimizer: soybean_compiler::Optimizer::default(),
    };
    let compiled =
        compile(builder, loss, &[], &options, &|| 0.0).map_err(|faults| format!("{faults:?}"))?;
    let mut trainer = Trainer::new_shared(
        Arc::new(compiled.program),
        Config { device: Device::Cpu, ..Config::default() },
    )?;
    let x: Vec<f32> =
        (0..BATCH * width).map(|it| ((it * 7919 % 2003) as f32 - 1001.0) / 578.0).collect();
    let y: Vec<i32> = (0..).step_by(2).take(BATCH).collect();
    let batch = [View::F32(&x), View::I32(&y)];
    for _ in 0..3 {
        trainer.step(&batch)?;
    }
    trainer.reset_profile()?;
    let mut milliseconds = Vec::new();
    for _ in 0..N_STEPS {
        let started = Instant::now();
        trainer.step(&batch)?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    let profiles = trainer.profile();
    let share = profiles.iter().map(|it| it.share(KernelCategory::Contraction)).sum::<f64>()
        / profiles.len() as f64;
    Ok((milliseconds[0], milliseconds[N_STEPS / 2], share))
}
