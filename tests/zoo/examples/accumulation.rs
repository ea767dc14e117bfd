//! Steps that share an update: the bytes of accumulating and of updating steps.
//!
//! `cargo run --release -p soybean-zoo --example accumulation -- [NETWORK..]` prints the table of
//! `docs/planner.md`.

use std::{
    error::Error,
    io::{self, Write as _},
};

use soybean_compiler::{Compiled, Optimizer, Options, Strategy, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{Entry, Model, ZOO};

const N_GPUS: usize = 8;
/// The number of steps that share an update.
const ACCUMULATE: u64 = 8;
const NETWORKS: [&str; 5] = ["gpt-12", "encoder", "resnet50", "vgg16", "mlp"];
const HEADS: [&str; 8] = [
    "network",
    "strategy",
    "accumulating step, MB",
    "updating step, MB",
    "8 steps, MB",
    "proof",
    "8 steps that all update, MB",
    "memory, MB",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = NETWORKS.map(str::to_owned).to_vec();
    }
    let mut output = io::stdout().lock();
    writeln!(output, "| {} |\n|{}", HEADS.join(" | "), " --- |".repeat(HEADS.len()))?;
    for name in &names {
        let entry = ZOO.iter().find(|it| it.name == name).ok_or("expected a network of the zoo")?;
        for strategy in [Strategy::Data, Strategy::Auto] {
            writeln!(output, "{}", row(entry, strategy)?)?;
        }
    }
    Ok(())
}

fn row(entry: &Entry, strategy: Strategy) -> Result<String, Box<dyn Error>> {
    let [every_step, shared] = [1, ACCUMULATE].map(|it| compiled(entry, strategy, it));
    let (every_step, shared) = (every_step?, shared?);
    let tables = &shared.program.tables;
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let proof = match (strategy, shared.report.gap()) {
        (Strategy::Auto, Some(0.0)) => "optimal".to_owned(),
        (Strategy::Auto, Some(gap)) => format!("within {:.2} %", 100.0 * gap),
        _ => String::new(),
    };
    Ok(format!(
        "| {} | {} | {} | {} | {} | {proof} | {} | {} |",
        entry.name,
        strategy.name(),
        megabytes(tables.accumulate_bytes),
        megabytes(tables.train_bytes()),
        megabytes(tables.measured_bytes()),
        megabytes(ACCUMULATE * every_step.program.tables.train_bytes()),
        megabytes(shared.report.peak_memory_bytes_per_gpu),
    ))
}

fn compiled(
    entry: &Entry,
    strategy: Strategy,
    accumulate: u64,
) -> Result<Compiled, Box<dyn Error>> {
    let Model { builder, loss, .. } = (entry.model)();
    let optimizer = optimizer(entry.optimizer, &[]).map_err(|it| it.message)?;
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus: N_GPUS,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: Optimizer { accumulate, ..optimizer },
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|it| format!("{it:?}").into())
}
