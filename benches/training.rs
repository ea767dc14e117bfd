//! Training steps: `cargo bench --bench training`. With `-- buckets`, only those with and without
//! buckets of collectives are measured. With `-- tilings`, only those of the paper's Table 1: the
//! same step on one device as one rank and as eight, on a GPU if there is one.
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
use soybean_compiler::{
    Options, Strategy, build_network, compile, program, program_without_buckets, tiling::search,
};
use soybean_plan::{Executable, Mesh, Program};
use soybean_zoo::{Model, Transformer, perceptron};

const BATCH: usize = 512;
const N_LAYERS: usize = 4;
const N_STEPS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut output = io::stdout().lock();
    let is_asked = |name: &str| std::env::args().any(|it| it == name);
    if is_asked("tilings") {
        return tilings(&mut output);
    }
    if !is_asked("buckets") {
        perceptrons(&mut output)?;
    }
    writeln!(output, "a GPT on 8 ranks: ms without and with buckets, and their ratio")?;
    for n_blocks in [1, 4] {
        for (name, times) in ["least", "median"].iter().zip(with_buckets(n_blocks)?) {
            ratio(&mut output, &format!("{n_blocks} blocks, {name:<6}"), times)?;
        }
    }
    Ok(())
}

/// Writes a line with two times in milliseconds, and the second over the first.
fn ratio(output: &mut dyn Write, name: &str, [one, other]: [f64; 2]) -> io::Result<()> {
    writeln!(output, "{name} {one:>8.2} {other:>8.2} {:>6.3}", other / one)
}

/// Measures four layers of 8192 units. The products of eight ranks are smaller, so that memory is
/// read more often, and what ranks exchange stays on the device.
fn tilings(output: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
    writeln!(output, "4 layers of 8192 units: ms as 1 rank and as 8, and their ratio")?;
    for batch in [512, 1024, 2048] {
        let trainer = |n_gpus| -> Result<Trainer, Box<dyn std::error::Error>> {
            let model = perceptron(batch, &[8192; N_LAYERS + 1]);
            let program = compiled("mlp", model, n_gpus)?;
            Ok(Trainer::new_shared(Arc::new(program), Config::default())?)
        };
        let trainers = [trainer(1)?, trainer(8)?];
        let (x, y) = rows(batch, 8192);
        let batch_of_rows = [View::F32(&x), View::I32(&y)];
        let [least, median] = alternating(trainers, &batch_of_rows, 1, 3)?;
        ratio(output, &format!("batch {batch:>4}, least "), least)?;
        ratio(output, &format!("batch {batch:>4}, median"), median)?;
    }
    Ok(())
}

fn compiled(
    name: &str,
    Model { builder, loss, .. }: Model,
    n_gpus: usize,
) -> Result<Executable, String> {
    let options = Options {
        name: name.to_owned(),
        n_gpus,
        search: Strategy::Auto.into(),
        precision: soybean_plan::Precision::F32,
        optimizer: soybean_compiler::Optimizer::default(),
    };
    let compiled = compile(builder, loss, &[], &options, &|| 0.0);
    Ok(compiled.map_err(|faults| format!("{faults:?}"))?.program)
}

/// Returns a batch of a perceptron with inputs of this width.
fn rows(batch: usize, width: usize) -> (Vec<f32>, Vec<i32>) {
    let x = (0..batch * width).map(|it| ((it * 7919 % 2003) as f32 - 1001.0) / 578.0).collect();
    (x, (0..).step_by(2).take(batch).collect())
}

/// Returns the least and the median times of steps of two trainers, in milliseconds. The steps
/// alternate, so that both meet the same load of the machine; each is first in every other pair.
fn alternating(
    mut trainers: [Trainer; 2],
    batch: &[View<'_>],
    n_warm: usize,
    n_steps: usize,
) -> Result<[[f64; 2]; 2], Box<dyn std::error::Error>> {
    let mut milliseconds = [Vec::new(), Vec::new()];
    for step in 0..n_warm + n_steps {
        for at in [step % 2, 1 - step % 2] {
            let started = Instant::now();
            trainers[at].step(batch)?;
            if step >= n_warm {
                milliseconds[at].push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    milliseconds.iter_mut().for_each(|it| it.sort_unstable_by(f64::total_cmp));
    let of_both = |at: usize| milliseconds.each_ref().map(|it| it[at]);
    Ok([of_both(0), of_both(n_steps / 2)])
}

fn perceptrons(output: &mut dyn Write) -> Result<(), Box<dyn std::error::Error>> {
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

/// Returns the least and the median times of a step of a small GPT in milliseconds, with each
/// collective alone and with buckets.
fn with_buckets(n_blocks: usize) -> Result<[[f64; 2]; 2], Box<dyn std::error::Error>> {
    let gpt = Transformer { batch: 8, tokens: 32, width: 64, n_heads: 4, n_blocks, n_words: 64 };
    let Model { builder, loss, .. } = gpt.decoder();
    let optimizer = soybean_compiler::optimizer("adam", &[]).map_err(|it| it.message)?;
    let network = build_network(builder, loss, &[], &optimizer).map_err(|it| format!("{it:?}"))?;
    let found = search(&network, Mesh::new(8), &Strategy::Auto.into());
    let config = || Config { device: Device::Cpu, ..Config::default() };
    let trainer = |program: Program| {
        // SAFETY: the program is the compiler's.
        #[expect(unsafe_code, reason = "benchmarks vouch for their programs")]
        let program = unsafe { Executable::new(program) };
        Trainer::new_shared(Arc::new(program), config())
    };
    let trainers = [
        trainer(program_without_buckets("alone", &found.tiled, None))?,
        trainer(program("joined", &found.tiled))?,
    ];
    let words: Vec<i32> = (0..64).cycle().take(8 * 32).collect();
    alternating(trainers, &[View::I32(&words), View::I32(&words)], 3, 10 * N_STEPS)
}

/// Returns the minimum and the median time of a step in milliseconds, and the fraction of it in
/// matrix products.
fn measure(width: usize, n_gpus: usize) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    let model = perceptron(BATCH, &[width; N_LAYERS + 1]);
    let program = compiled(&format!("mlp{width}"), model, n_gpus)?;
    let config = Config { device: Device::Cpu, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(program), config)?;
    let (x, y) = rows(BATCH, width);
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
