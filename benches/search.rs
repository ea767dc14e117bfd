//! The compiler, from the graph to the program: `cargo bench --bench search`.
//!
//! In a user's build the same code runs unoptimised inside the macro: `cargo run --example mlp -- plan` prints the time of the search there.

use std::{
    io::{self, Write},
    time::Instant,
};

use soybean_compiler::{Optimizer, Options, Strategy, compile};

#[path = "support/perceptron.rs"]
mod perceptron;

use perceptron::perceptron;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut output = io::stdout().lock();
    writeln!(
        output,
        "{:>6} {:>6} {:>10} {:>12} {:>14} {:>8}",
        "layers", "ranks", "strategy", "median ms", "bytes", "steps"
    )?;
    for n_layers in [2, 4, 10] {
        for n_gpus in [2, 4, 8] {
            for strategy in ["recursive", "auto"] {
                let row = measure(n_layers, n_gpus, strategy)?;
                writeln!(output, "{n_layers:>6} {n_gpus:>6} {strategy:>10} {row}")?;
            }
        }
    }
    Ok(())
}

fn measure(
    n_layers: usize,
    n_gpus: usize,
    strategy: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    let strategy: Strategy = strategy.parse().map_err(|_| "the strategy is known")?;
    let mut milliseconds = Vec::new();
    let mut rest = String::new();
    for _ in 0..5 {
        let (builder, loss) = perceptron(512, 8192, n_layers);
        let options =
            Options { name: "mlp".to_owned(), n_gpus, strategy, optimizer: Optimizer::default() };
        let started = Instant::now();
        let now = || started.elapsed().as_secs_f64() * 1e3;
        let compiled =
            compile(builder, loss, &[], &options, &now).map_err(|faults| format!("{faults:?}"))?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        rest = format!(
            "{:>14} {:>8}",
            compiled.program.tables.train_bytes,
            compiled.program.train.len()
        );
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    Ok(format!("{:>12.2} {rest}", milliseconds[2]))
}
